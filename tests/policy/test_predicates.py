"""What may be said of arguments: hostile forms, benign look-alikes, and what cannot be told."""

from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import pytest

from cairn.core.policy import (
    AllOf,
    Amount,
    Command,
    Equals,
    Host,
    IfGiven,
    Inside,
    Items,
    Matches,
    Not,
    OneOf,
    Policy,
    Predicate,
    Range,
    Rule,
)
from cairn.core.policy.predicates import told
from cairn.errors import ConfigError

NAN, INF = float("nan"), float("inf")


def asked(predicate: Predicate, value: Any, **others: Any) -> bool | None:
    """What a rule that allows is told of the argument `x`."""
    found: bool | None = told("x", predicate, {"x": value, **others}, allows=True)
    return found


def passes(predicate: Predicate, value: Any, **others: Any) -> bool:
    """Whether a call passes a policy that allows what is so, and denies all else."""
    rule = Rule(name="r", decide="allow", arguments={"x": predicate})
    policy = Policy(rules=(rule,), effects={"write": "deny"})
    return policy.judge("act", "write", {"x": value, **others}).decision == "allow"


def is_stopped(predicate: Predicate, value: Any) -> bool:
    """Whether a policy that denies what is so stops a call."""
    rule = Rule(name="r", decide="deny", arguments={"x": predicate})
    policy = Policy(rules=(rule,), effects={"write": "allow"})
    return policy.judge("act", "write", {"x": value}).decision == "deny"


# ---------------------------------------------------------------- values and numbers

EUR = Amount(max=100, currency="EUR", currency_argument="unit")


@pytest.mark.parametrize(
    ("predicate", "value"),
    [
        (Equals(value="EUR"), "EUR"),
        (Equals(value=1), 1),
        (Equals(value=1), 1.0),
        (Equals(value=True), True),
        (Equals(value=None), None),
        (OneOf(values=("a", 2)), 2),
        (OneOf(values=("a", "b")), "b"),
        (Matches(pattern=r"\d+"), "123"),
        (Matches(pattern="é"), "é"),
        (Range(min=0, max=100), 100),
        (Range(min=0, max=100), 0),
        (Range(max=0.3), 0.3),
        (Range(max=10), Decimal("9.99")),
        (Range(min=-5), -5),
        (Amount(max=0.3), "0.30"),
        (Amount(max=100), 99.5),
        (AllOf(predicates=(Matches(pattern="[a-z]+"), Not(predicate=Equals(value="no")))), "yes"),
    ],
)
def test_what_is_so_passes_a_rule_that_allows(predicate: Predicate, value: Any) -> None:
    assert passes(predicate, value)


@pytest.mark.parametrize(
    ("predicate", "value"),
    [
        *(
            (Equals(value="admin"), v)
            for v in ("Admin", "admin ", "ａdmin", "ad\u200bmin", "ADMIN")
        ),
        *((Equals(value="admin"), v) for v in (None, 1, True, ["admin", "x"], {"a": 1}, b"admin")),
        *((Equals(value=1), v) for v in (True, "1", 1.5, NAN, None, [])),
        *((OneOf(values=("a", "b")), v) for v in ("A", "c", 1, None, "a\u200d", "b\n", [])),
        *((Matches(pattern=r"\d{1,4}"), v) for v in ("12345", "1\n", "", "１２", "-1", 12, None)),
        (Matches(pattern=".*"), "a" * 5_000),
        (Matches(pattern="To: .*"), "To: kim\nBcc: lee"),
        *((Range(max=100), v) for v in (100.01, NAN, INF, "5", True, False, None, [5, 500], {})),
        *((Range(min=0, max=100), v) for v in (-1, -INF, "0", 10**400, Decimal("NaN"), "٣")),
        *((Amount(max=100), v) for v in ("1e1", "100.01", "NaN", "٣", " 5", "5 ", "+5", "0x5", "")),
        *((Amount(max=100), v) for v in (True, None, INF, "1_0", "5,00", "9" * 30, [])),
    ],
)
def test_hostile_values_do_not_pass_a_rule_that_allows(predicate: Predicate, value: Any) -> None:
    assert not passes(predicate, value)


@pytest.mark.parametrize(
    ("predicate", "value"),
    [
        *((Equals(value="admin"), v) for v in ("admin", "Admin", "ａdmin", "ad\u200bmin", 5, None)),
        *((OneOf(values=("a", "b")), v) for v in ("A", "b\u200d", 1, None)),
        *(
            (Matches(pattern="secret.*"), v)
            for v in ("secrets", "ｓecret", "se\u200bcret", 5, "a" * 9_999)
        ),
        *((Matches(pattern=".*secret.*"), v) for v in ("a\nsecret", "secret\n", "a\rsecret")),
        *((Range(min=1000), v) for v in (1000, "1000", NAN, None, True, [5, 5000])),
        *((Amount(min=1000), v) for v in ("1000", "1e9", NAN, None)),
    ],
)
def test_what_cannot_be_told_does_not_pass_a_rule_that_denies(
    predicate: Predicate, value: Any
) -> None:
    assert is_stopped(predicate, value)


@pytest.mark.parametrize(
    ("predicate", "value"),
    [
        (Equals(value="admin"), "administrator"),
        (Equals(value="rm"), "form"),
        (OneOf(values=("a", "b")), "ab"),
        (Matches(pattern="secret.*"), "no secret"),
        (Matches(pattern="secret.*"), "日本語"),
        (Matches(pattern=".*secret.*"), "two\nlines"),
        (Range(min=1000), 999.99),
        (Range(min=1000), 0),
        (Amount(min=1000), "999.99"),
        (Equals(value=1), 2),
        (Not(predicate=Equals(value="a")), "a"),
    ],
)
def test_benign_values_pass_a_rule_that_denies(predicate: Predicate, value: Any) -> None:
    assert not is_stopped(predicate, value)


def test_an_amount_in_another_currency_cannot_be_told() -> None:
    assert asked(EUR, 99, unit="EUR") is True
    assert asked(EUR, 101, unit="EUR") is False
    for unit in ("USD", "eur", "EUR ", None, 5, ["EUR", "EUR"], "ＥUR"):
        assert asked(EUR, 1, unit=unit) is None
    assert asked(EUR, 1) is None, "no currency was given"


# ---------------------------------------------------------------- paths

INSIDE = [
    "a.txt",
    "./a.txt",
    "a/b/../c.txt",
    "a//b",
    "a/./b",
    ".",
    ".env",
    "..hidden",
    "a..b/c",
    "notes (1).txt",
    "50% done.txt",
    "café/münchen.txt",
    "报告：第一章.txt",
    "ab:c",
    "x=$5.txt",
    "-rf",
    "report%20final.txt",
    "tilde~1.txt",
    "deep/" * 20 + "x",
]
OUTSIDE = [
    "",
    "..",
    "../a",
    "a/../../b",
    "a/b/../../../c",
    "/etc/passwd",
    "//etc/passwd",
    "~/x",
    "~root/x",
    "..\\a",
    "a\\..\\..\\b",
    "C:/x",
    "c:x",
    "file:///etc/passwd",
    "http://x/y",
    "a\0b",
    "a\n/../b",
    "%2e%2e/a",
    "a/%2E%2e/b",
    "..%2fa",
    "%252e%252e/a",
    "%c0%ae%c0%ae/a",
    "a%00b",
    "..\u2215a",
    "a\u2044..\u2044b",
    "\uff0fetc",
    "a\uff0f..\uff0f..",
    "．．/a",
    "\u2025/a",
    "..\u200b/a",
    "a/\u202e../b",
    " /etc/passwd",
    "/etc/passwd ",
    "a /b",
    ".. /a",
    "... /a",
    ".../a",
    "$HOME/x",
    "${HOME}/x",
    "a/$(id)",
    "%USERPROFILE%/x",
    "a" * 5_000,
    "％２ｅ％２ｅ/a",
    "a\ud800b",
]


@pytest.mark.parametrize("path", INSIDE)
def test_a_path_below_the_folder_is_inside(path: str) -> None:
    assert asked(Inside(roots=(".",)), path) is True
    assert asked(Inside(roots=("/srv/data",)), f"/srv/data/{path.removeprefix('./')}") is True
    assert not is_stopped(Not(predicate=Inside(roots=(".",))), path)


@pytest.mark.parametrize("path", OUTSIDE)
def test_of_a_path_that_leaves_or_may_leave_the_folder_it_cannot_be_told(path: str) -> None:
    assert asked(Inside(roots=(".",)), path) is None
    assert not passes(Not(predicate=Inside(roots=(".",))), path)
    assert is_stopped(Inside(roots=(".",)), path)
    assert is_stopped(Not(predicate=Inside(roots=(".",))), path)


@pytest.mark.parametrize(
    "path", ["/srv/database/x", "/srv/dat", "/srv", "/proc/self/root/srv/data/x"]
)
def test_a_neighbour_of_an_absolute_folder_is_outside(path: str) -> None:
    assert asked(Inside(roots=("/srv/data",)), path) is False


@pytest.mark.parametrize(
    "path",
    [
        "/srv/data/../data/x",
        "/srv/data/../../etc/passwd",
        "//srv/data/x",
        "srv/data/x",
        "/SRV/data/x",
        "/srv/data%2f..%2f../x",
        "/srv/\u200bdata/x",
        "/srv/data/../../srv/data/x",
    ],
)
def test_a_form_that_may_lead_to_an_absolute_folder_cannot_be_told(path: str) -> None:
    assert asked(Inside(roots=("/srv/data",)), path) is None


def test_what_is_no_text_is_neither_inside_nor_outside() -> None:
    for value in (None, 5, True, {}, b"a"):
        assert asked(Inside(roots=(".",)), value) is None
        assert is_stopped(Inside(roots=(".",)), value)
    assert asked(Inside(roots=(".",)), PurePosixPath("a/b")) is True


@pytest.mark.parametrize("root", ["", "..", "../a", "a/../b", "C:\\x", "~", "//x", "%2e", "a\\b"])
def test_a_folder_that_could_be_read_in_two_ways_is_refused(root: str) -> None:
    with pytest.raises(ConfigError):
        Inside(roots=(root,))


# ---------------------------------------------------------------- hosts

ALLOWED = Host(hosts=("example.org", "*.example.net", "10.0.0.7"))


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org",
        "https://example.org/",
        "http://example.org:80/x",
        "https://example.org:443/x?y=http://evil.com/#@evil.com",
        "HTTPS://EXAMPLE.ORG/",
        "https://a.example.net/x@y",
        "https://a.b.example.net",
        "example.org",
        "http://10.0.0.7/",
        "wss://a.example.net/socket",
        "https://example.org?next=//evil.com",
        "https://xn--bcher-kva.example.net/",
    ],
)
def test_an_address_of_an_allowed_host_passes(address: str) -> None:
    assert passes(ALLOWED, address)


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.com",
        "https://example.org.evil.com",
        "https://evil-example.org",
        "https://example.net",  # the pattern means what lies below it
        "https://example.org@evil.com",
        "https://evil.com@example.org",
        "https://example.org:pass@evil.com",
        "https://example.org:@evil.com",
        "https://example.org%40evil.com",
        "https://evil.com/example.org",
        "https://evil.com?example.org",
        "https://evil.com#example.org",
        "https://evil.com\\@example.org",
        "https://example.org\\.evil.com",
        "https://example.org\n.evil.com",
        "https://example.org\t",
        " https://example.org",
        "https://example.org.",
        "https://example.org:8080",
        "https://example.org:0443",
        "https://example.org:",
        "https://exаmple.org",
        "https://ｅxample.org",
        "https://example。org",
        "https://exam\u200bple.org",
        "https://example.org\u2044@evil.com",
        "//example.org",
        "https:example.org",
        "https:/example.org",
        "https:///example.org",
        "javascript://example.org/%0aalert(1)",
        "file://example.org/etc/passwd",
        "gopher://example.org",
        "https://[::ffff:10.0.0.7]/",
        "http://0x0a.0.0.7/",
        "http://012.0.0.7/",
        "http://167772167/",
        "http://10.0.7/",
        "http://10.0.0.7./",
        "http://10.0.0.07/",
        "http://-example.org",
        "http://exam_ple.org",
        "http://*.example.net",
        "http://example.org, http://evil.com",
        "",
        "a" * 9_000,
    ],
)
def test_an_address_that_is_or_may_be_another_host_does_not_pass(address: str) -> None:
    assert not passes(ALLOWED, address)


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1:8080/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://a@127.0.0.1/",
        "http://127.0.0.1./",
        "http://１２７.0.0.1/",
        "127.0.0.1",
        "http://127.0.0.1%00/",
    ],
)
def test_no_form_of_a_denied_host_passes(address: str) -> None:
    assert is_stopped(Host(hosts=("127.0.0.1",)), address)


def test_other_hosts_pass_a_rule_that_denies_one() -> None:
    for address in ("http://127.0.0.2/", "https://example.org/127.0.0.1", "http://[::1]/"):
        assert not is_stopped(Host(hosts=("127.0.0.1",)), address)
    assert passes(Host(hosts=("example.org",), ports=(8080,)), "http://example.org:8080/")
    assert passes(Host(hosts=("::1",)), "http://[::1]/")


@pytest.mark.parametrize(
    "host",
    ["Example.org", "https://x.org", "x.org:80", "*", "*.org", "a.*.org", "é.org", "", "x_y.org"],
)
def test_a_host_that_is_not_in_its_proper_form_is_refused(host: str) -> None:
    with pytest.raises(ConfigError):
        Host(hosts=(host,))


# ---------------------------------------------------------------- commands

READS = Command(
    programs=("git",),
    first=("log", "status", "diff"),
    only_flags=("--oneline", "-n", "-p", "--stat"),
    words=Inside(roots=(".",)),
    most_words=3,
)
GOOD_COMMANDS: list[Any] = [
    "git status",
    "git log --oneline",
    "git log -n 5",
    "git log -pn 5",
    'git diff "my file.txt"',
    "git diff 'a$.txt'",
    "git diff -- src",
    "git  status ",
    "git log HEAD~3",
    "git diff --stat=80",
    ["git", "log", "a b;c"],
    ["git", "diff", "--", "-odd-name"],
    "git diff é.txt",
]
BAD_COMMANDS: list[Any] = [
    "git push",
    "git",
    "gitx status",
    "./git status",
    "/usr/bin/git status",
    "git status; rm -rf x",
    "git status && id",
    "git status || id",
    "git status | sh",
    "git status & id",
    "git status\nid",
    "git status\r\nid",
    "git log $(id)",
    "git log `id`",
    'git log "$(id)"',
    'git log "`id`"',
    "git log $HOME",
    "git log ${IFS}id",
    "git log > x",
    "git log < x",
    "git log <<< x",
    "git log 2>x",
    "git log <(id)",
    "GIT_PAGER=id git log",
    "X=1 git log",
    "env git log",
    "sudo git log",
    "git log *",
    "git log ?.txt",
    "git log [ab]",
    "git log {a,b}",
    "git log ~/x",
    "git log 'open",
    'git log "open',
    "git log \\",
    "gi\\t log",
    "! git log",
    "(git log)",
    "{ git log; }",
    "git log # x",
    "#git log",
    "time git log",
    "git -c core.pager=id log",
    "git --exec-path=x log",
    "git log --onelin",
    "git log --output=x",
    "git log -o x",
    "git log -pno",
    "git log --stat=/etc/x",
    "git diff /etc/passwd",
    "git diff ../x",
    "git log a b c d",
    "git\u00a0log",
    "git log\u2028id",
    "git l\u200bog",
    "ｇit log",
    "'' git log",
    "''",
    "",
    "git log " + "a" * 9_000,
    [],
    ["git"],
    ["git", 5],
    ["git log"],
    ["sh", "-c", "git log"],
    ["git", "log", "a\0b"],
    ["GIT=1", "git", "log"],
    None,
    5,
    {"argv": "git log"},
]


@pytest.mark.parametrize("command", GOOD_COMMANDS, ids=repr)
def test_one_simple_command_of_the_allowed_form_passes(command: Any) -> None:
    assert passes(READS, command)


@pytest.mark.parametrize("command", BAD_COMMANDS, ids=lambda c: repr(c)[:40])
def test_any_other_command_does_not_pass(command: Any) -> None:
    """B62."""
    assert not passes(READS, command)


@pytest.mark.parametrize(
    "command",
    [
        "git push --force",
        "git push -f",
        "git push --forc",
        "git push --fo origin",
        "git push -vf",
        "git push -fv origin",
        "git push --force=yes",
        "git push origin -f",
        "git push -force",
        "/usr/bin/git push -f",
        "GIT push -f",
        "git push -f; id",
        "env git push -f",
        "sh -c 'git push -f'",
        "git -C x push -f",
        "g''it push --force",
        ["git", "push", "-f"],
        ["xargs", "git", "push", "-f"],
        None,
    ],
    ids=repr,
)
def test_no_form_of_a_denied_command_passes(command: Any) -> None:
    assert is_stopped(
        Command(programs=("git",), first=("push",), with_flags=("--force", "-f")), command
    )


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git push origin main",
        "git status",
        "ls -f",
        "git push --verbose",
        "git push -- -f",
    ],
)
def test_a_command_beside_the_denied_one_passes(command: str) -> None:
    rule = Command(programs=("git",), first=("push",), with_flags=("--force", "-f"))
    assert not is_stopped(rule, command)


def test_a_command_that_is_not_all_it_must_be_is_stopped_by_its_opposite() -> None:
    only = Command(programs=("cat",), words=Inside(roots=(".",)))
    assert not is_stopped(Not(predicate=only), "cat a b")
    assert is_stopped(Not(predicate=only), "cat a /etc/passwd")
    assert is_stopped(Command(programs=("cat",), words=Inside(roots=("/etc",))), "cat a /etc/x")
    assert passes(Command(programs=("ls",), no_flags=("-R", "--recursive")), "ls -l")
    for flags in ("-lR", "--rec", "--recursive", "-R"):
        assert not passes(Command(programs=("ls",), no_flags=("-R", "--recursive")), f"ls {flags}")
    assert not passes(Command(programs=("ls",), only_flags=()), "ls -l")


@pytest.mark.parametrize(
    "fields",
    [
        {"programs": ()},
        {"programs": ("./x",)},
        {"programs": ("a b",)},
        {"programs": ("bin/x",)},
        {"programs": ("x",), "only_flags": ("force",)},
        {"programs": ("x",), "no_flags": ("--",)},
        {"programs": ("x",), "with_flags": ("--a=b",)},
    ],
)
def test_a_command_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Command(**fields)


# ---------------------------------------------------------------- places and lists


def test_an_argument_is_found_by_its_path_through_objects_and_lists() -> None:
    arguments = {"order": {"items": [{"cents": 5}, {"cents": 900}], "to": ["a", "b"]}}
    small, big = Range(max=100), Range(min=500)
    assert told("order.items.cents", small, arguments, allows=True) is False, "all must fit"
    assert told("order.items.cents", big, arguments, allows=False) is True, "one is enough"
    assert told("order.to", OneOf(values=("a", "b")), arguments, allows=True) is True
    every, some = (Items(mode=m, predicate=big) for m in ("all", "any"))
    assert told("order.items.cents", every, arguments, allows=False) is False
    assert told("order.items.cents", some, arguments, allows=True) is True


@pytest.mark.parametrize("path", ["nothing", "order.nothing", "order.cents.deep", "order.list.x"])
def test_an_argument_that_is_not_there_never_allows_and_always_denies(path: str) -> None:
    arguments = {"order": {"cents": 5, "list": [{"y": 1}]}}
    policy = Policy(rules=(Rule(name="r", decide="allow", arguments={path: Range(max=9)}),))
    assert policy.judge("act", "write", arguments).decision == "ask"
    policy = Policy(rules=(Rule(name="r", decide="deny", arguments={path: Range(max=9)}),))
    assert policy.judge("act", "read", arguments).decision == "deny"


def test_an_optional_argument_that_is_not_given_is_harmless_either_way() -> None:
    inside = IfGiven(predicate=Matches(pattern=r".*@example\.org"))
    for given in ({}, {"cc": None}):
        assert told("cc", inside, given, allows=True) is True
        assert told("cc", inside, given, allows=False) is False
    assert told("cc", inside, {"cc": "a@evil.com"}, allows=True) is False
    assert told("cc", inside, {"cc": ["a@example.org", None]}, allows=True) is None


def test_an_empty_list_allows_nothing_and_holds_nothing_to_deny() -> None:
    assert told("x", Equals(value="a"), {"x": []}, allows=True) is None
    assert told("x", Equals(value="a"), {"x": []}, allows=False) is False
