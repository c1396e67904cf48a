"""Commands against a policy that allows some by their words, and against the walls behind it."""

from tests.governance.cases import SECRET, VARIABLE, Case, Place, written

KIND, WALLS = "shell", "walls"
LISTED = "deployment: effect write"
SORTS = "deployment: only sorting"
NEVER = "deployment: never rm"
ENVIRONMENTS = """
import os
print(dict(os.environ))
for process in os.listdir('/proc'):
    try:
        print(open(f'/proc/{process}/environ').read())
    except OSError:
        pass
"""
CONNECTIONS = """
import socket
for host in ('127.0.0.1', '127.0.0.3', 'localhost'):
    try:
        socket.create_connection((host, PORT), 1)
        print('reached')
    except OSError as error:
        print(error)
"""


def hostile(place: Place) -> list[Case]:
    mark, secret = f"{place.outside}/made", f"{place.outside}/secret.txt"
    commands = [
        *_joined(mark),
        *_led_elsewhere(mark, secret),
        *_before(mark, secret, str(place.outside)),
        *_written_otherwise(mark),
        *_files(secret),
    ]
    found = [Case(KIND, "shell", "shell", written(command=c), LISTED) for c in commands]
    found.append(Case(KIND, "shell", "shell", written(command="a" * 60_000), "- command:"))
    found.append(Case(KIND, "shell", "shell", written(command=""), "- command:"))
    return found + _sorting(mark) + _removing() + _words(mark) + _walls(place)


def _joined(mark: str) -> list[str]:
    return [
        f"echo a; touch {mark}",
        f"echo a && touch {mark}",
        f"echo a&&touch {mark}",
        f"echo a || touch {mark}",
        f"echo a | tee {mark}",
        f"echo a |& tee {mark}",
        f"echo a\ntouch {mark}",
        f"echo a\r\ntouch {mark}",
        f"echo a\rtouch {mark}",
        f"echo a & touch {mark}",
        "echo a &",
        f"(touch {mark})",
        f"{{ touch {mark}; }}",
        f"! touch {mark}",
        f"if touch {mark}; then echo a; fi",
        f"while touch {mark}; do echo a; done",
        f"echo() {{ touch {mark}; }}; echo",
        f"time touch {mark}",
        # put in
        f"echo $(touch {mark})",
        f"echo `touch {mark}`",
        f'echo "$(touch {mark})"',
        f'echo "`touch {mark}`"',
        f"echo <(touch {mark})",
        f"echo $((a[$(touch {mark})]))",
        "echo ${PWD%%x}",
        f"echo ${VARIABLE}",
        f'echo "${VARIABLE}"',
    ]


def _led_elsewhere(mark: str, secret: str) -> list[str]:
    return [
        f"echo a > {mark}",
        f"echo a >> {mark}",
        f"echo a >| {mark}",
        f"echo a 2>{mark}",
        f"echo a &>{mark}",
        f"cat < {secret}",
        f"cat <> {mark}",
        f"cat <<E\n$(touch {mark})\nE",
        f"cat <<< {secret}",
        f"exec 3>{mark}",
    ]


def _before(mark: str, secret: str, outside: str) -> list[str]:
    return [
        # before the command
        f"PATH={outside} echo a",
        "LD_PRELOAD=/x/y.so echo a",
        "IFS=/ echo a",
        "A=1 B=2 echo a",
        "a[0]=1 echo a",
        "A+=1 echo a",
        f"env touch {mark}",
        f"env -i touch {mark}",
        f"command touch {mark}",
        f"exec touch {mark}",
        f"eval touch {mark}",
        f"nohup touch {mark}",
        f"timeout 5 touch {mark}",
        f"xargs touch {mark}",
        f"busybox touch {mark}",
        f". {secret}",
        f"source {secret}",
        f"alias echo='touch {mark}'",
        # interpreters and others
        f"sh -c 'touch {mark}'",
        f"bash -c 'touch {mark}'",
        f'python3 -c \'open("{mark}", "w")\'',
        f"awk 'BEGIN{{system(\"touch {mark}\")}}'",
        f"find . -exec touch {mark} +",
        "./echo a",
        f"{outside}/echo a",
        "../echo a",
        "/bin/../bin/echo a",
        f"touch {mark}",
    ]


def _written_otherwise(mark: str) -> list[str]:
    return [
        f"e\\cho a; touch {mark}",
        f"\\touch {mark}",
        f"t''ouch {mark}",
        f't"ou"ch {mark}',
        f"$'\\x74ouch' {mark}",
        f"$'\\164\\157uch' {mark}",
        "echo $'\\x61'",
        'echo $"a"',
        "{touch,x}",
        "ech? a",
        "ec[h]o a",
        "/bin/ech*",
        "cat notes/*",
        "cat notes/tod?y.md",
        "cat {notes,docs}/a",
        "cat ~/.ssh/id_rsa",
        "echo ~",
        "echo ~/x",
        "echo a=~/x",
        "cat ~root/x",
        f"ec\\\nho a \\\n; touch {mark}",
        f"echo 'a\ntouch {mark}",
        'echo "a',
        "echo a # b",
        "!!",
        "echo !touch",
        # look-alikes and what cannot be seen
        "ech\u043e a",
        "\uff45cho a",
        "ec\u200bho a",
        "echo\u00a0a",
        "echo\u3000a",
        "\u2060echo a",
        "echo a\uff1btouch b\u2028touch c",
        "echo a\x00touch",
        "echo a\x0btouch b",
        "echo a\x0ctouch b",
        "echo\ta",
        "echo \u202ea",
        "ECHO a",
        "echo.exe a",
        "echo a \x1b[2J",
    ]


def _files(secret: str) -> list[str]:
    return [
        # files that are not inside
        f"cat {secret}",
        "cat /etc/passwd",
        "cat ../../outside/secret.txt",
        "cat notes/../../../outside/secret.txt",
        "cat -- /etc/passwd",
        "cat -- ../x",
        "cat -n /etc/passwd",
        "cat -A notes/today.md",
        "cat --show-all notes/today.md",
        "grep -f /etc/passwd notes/today.md",
        "grep -f/etc/passwd x notes/today.md",
        "grep --file=/etc/passwd notes/today.md",
        "grep --fil=/etc/passwd notes/today.md",
        "grep -rn x /etc",
        "grep -nr x notes",
        "grep -n x notes/today.md /etc/passwd",
        "wc --files0-from=/etc/passwd",
        "wc --files0-from=../x",
        "wc --files0-f=/etc/passwd",
        "ls /",
        "ls -R ..",
        "ls --color=/x notes",
        # too much
        "echo " + "a" * 9_000,
        "echo " + "a " * 300,
        "   ",
        "''",
        "=",
        "-x",
        ";",
    ]


def _sorting(mark: str) -> list[Case]:
    """All options are free but those by which `sort` writes, or runs a program."""
    options = [
        f"-o {mark}",
        f"-o{mark}",
        f"-no {mark}",
        f"-nro{mark}",
        f"--output={mark}",
        f"--output {mark}",
        f"--out={mark}",
        f"--o={mark}",
        f"'--outp={mark}'",
        f'-"o" {mark}',
        "--compress-program=sh",
        "--compress-prog=sh",
        "--comp=sh",
        "--co sh",
        "--files0-from=/etc/passwd",
        "--files0=-",
        "--fi=/x",
        f"-T {mark}",
        f"-nT{mark}",
        f"--temporary-directory={mark}",
        f"--temp={mark}",
        f"numbers.txt -o {mark}",
        f"-n -- numbers.txt; sort -o {mark}",
    ]
    commands = [f"sort {o} numbers.txt" for o in options]
    commands += [f"SORT -o {mark}", f"gsort -o {mark}", f"/usr/bin/sort -o {mark} numbers.txt"]
    return [Case(KIND, "shell", "sorter", written(command=c), SORTS) for c in commands]


def _removing() -> list[Case]:
    """All is free but one program: what may be it, or cannot be told, is denied as well."""
    commands = [
        "rm no-such",
        "/bin/rm no-such",
        "./rm no-such",
        "RM no-such",
        "'rm' no-such",
        'r"m" no-such',
        "r\\m no-such",
        "\uff52m no-such",
        "env rm no-such",
        "sudo rm no-such",
        "/usr/bin/env rm no-such",
        "nice -n 5 rm no-such",
        "xargs rm no-such",
        "sh -c 'rm no-such'",
        "busybox rm no-such",
        "command rm no-such",
        "echo a; rm no-such",
        "echo $(rm no-such)",
        "echo a\nrm no-such",
        "A=rm; $A no-such",
        "eval rm no-such",
        "if rm no-such; then echo; fi",
    ]
    return [Case(KIND, "shell", "free", written(command=c), NEVER) for c in commands]


def _words(mark: str) -> list[Case]:
    """A tool that takes a list of words: the same rule, without a shell's reading of it."""
    lists = [
        ["touch", mark],
        ["tally", "-d"],
        ["tally", "--delete"],
        ["tally", "--del"],
        ["tally", "-nd"],
        ["tally", "-n", "-d=1"],
        ["tally", "a\x00b"],
        ["./tally"],
        ["/elsewhere/tally"],
        ["Tally"],
        ["tally\u200b"],
        [" tally"],
        ["env", "tally"],
        ["sh", "-c", "tally"],
        ["A=1", "tally"],
        ["-d"],
        [""],
        [],
        ["tally", *["x"] * 300],
        ["tally", "x" * 9_000],
    ]
    says = "deployment: only counting"
    return [Case(KIND, "shell", "words", written(argv=argv), says) for argv in lists]


def _walls(place: Place) -> list[Case]:
    """What the policy lets pass runs behind walls: it may do what it likes, and reaches nothing."""
    outside, port = place.outside, place.port
    lines = [
        f"cat {outside}/secret.txt",
        "cat link_folder/secret.txt; cat link_file",
        f"cat link_proc /proc/1/environ /proc/self/environ; env; echo ${VARIABLE}",
        f"echo x > {outside}/made; touch link_nowhere; echo x >> {outside}/secret.txt",
        f"mkdir -p {outside}; rm -rf {outside}/deep; mv {outside}/secret.txt here",
        f"ln -s {outside} mine; cat mine/secret.txt; ln {outside}/secret.txt stolen; cat stolen",
    ]
    found = [Case(WALLS, "walls", "confined", written(command=c), holds=True) for c in lines]
    programs = [
        f"print(open('{outside}/secret.txt').read())",
        ENVIRONMENTS,
        CONNECTIONS.replace("PORT", str(port)),
        f"import os\nos.chdir('/')\nopen('{outside}/made', 'w')",
    ]
    found += [Case(WALLS, "walls", "program", written(code=c), holds=True) for c in programs]
    return found


def benign(place: Place) -> list[Case]:
    commands = [
        "echo 'a && b; c | d > e'",
        'echo "a && b"',
        "echo 'the price is $5 `or so`'",
        "echo 'it'\"'\"'s fine'",
        "echo a-b --c -n",
        "echo 'two\nlines'".replace("\n", " "),
        "echo gr\u00fc\u00dfe \u65e5\u672c",
        "echo 1e9 100% a=b c:d @e",
        "echo ''",
        "echo http://example.org/a?".rstrip("?"),
        "printf '%s\\n' one two",
        "cat notes/today.md",
        "cat ./notes/today.md",
        "cat -n notes/today.md",
        "cat -- -x",
        "cat 'notes/today.md'",
        "ls",
        "ls -la notes",
        "wc -l notes/today.md",
        "ls -l -a",
        "grep -n call notes/today.md",
        "grep -in 'call' notes/today.md",
        "  echo   spaced   ",
        "/bin/echo whole",
    ]
    found = [Case(KIND, "shell", "shell", written(command=c)) for c in commands]
    sorts = ["sort numbers.txt", "sort -n -r numbers.txt", "sort -nr numbers.txt", "sort -- -x"]
    found += [Case(KIND, "shell", "sorter", written(command=c)) for c in sorts]
    free = ["echo rm", "echo 'rm -rf x; rm y'", "ls -- notes"]
    found += [Case(KIND, "shell", "free", written(command=c)) for c in free]
    lists = [
        ["tally", "a && b; c"],
        ["tally", "$(x)", "`y`", "> z"],
        ["tally", "-n", "--", "-d"],
        ["tally", "two\nlines"],
        ["tally", "delete", "d"],
    ]
    found += [Case(KIND, "shell", "words", written(argv=argv)) for argv in lists]
    found += [
        Case(WALLS, "walls", "confined", written(command="echo a > b && cat b | wc -c; rm b")),
        Case(WALLS, "walls", "program", written(code="print(sum(range(10)))")),
    ]
    assert SECRET not in str(found)
    return found
