"""The tools `shell` and `python`: the model's commands and programs, behind walls, with a gate."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn import Agent, Policy, Runtime, Scripted, call
from cairn.core import events as ev
from cairn.errors import ConfigError, ToolDefinitionError
from cairn.sandbox import Limits, Rung, Sandbox, probe
from cairn.store.inmemory import InMemoryStore
from cairn.toolkit import FILE_TOOLS, commands, programs, python, python_tool, shell, shell_tool
from cairn.tools.context import Context
from cairn.workspace import Workspace


@pytest.fixture
def folder() -> Iterator[Path]:
    """A workspace that another user can reach, unlike pytest's own folders."""
    with tempfile.TemporaryDirectory(prefix="cairn-") as made:
        Path(made).chmod(0o755)
        yield Path(made) / "workspace"


@pytest.fixture
def ctx(folder: Path) -> Context[Any]:
    return Context(workspace=Workspace(folder), timeout_s=20, run_id="r")


def test_commands_and_programs_are_dangerous_and_run_once() -> None:
    for tool, module in ((shell, commands), (python, programs)):
        assert (tool.spec.effect, tool.spec.recovery) == ("dangerous", "once")
        assert tool.spec.settle_us > 0
        assert module.TAINT == "files"
    assert shell_tool(name="sh", effect="write").spec.effect == "write"
    assert shell_tool(effect="read").spec.recovery == "repeat"


def test_a_command_works_in_the_workspace(ctx: Context[Any], folder: Path) -> None:
    told = shell("echo out; echo err >&2; echo x > made; exit 3", ctx)
    assert told == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}
    assert (folder / "made").read_text() == "x\n"
    assert shell("cat made; pwd", ctx)["stdout"].startswith("x\n")


@pytest.mark.parametrize("rung", [each.rung for each in probe() if each.reached])
def test_tools_for_files_and_commands_change_each_others_files(
    ctx: Context[Any], folder: Path, rung: Rung
) -> None:
    run = shell_tool(sandbox=Sandbox(rung))
    files = {each.name: each for each in FILE_TOOLS}
    files["write_file"]("a/one.txt", "one\n", ctx)
    assert run("echo two >> a/one.txt; mkdir b; echo x > b/two.txt", ctx)["exit_code"] == 0
    files["edit_file"]("a/one.txt", "two", "three", ctx)
    files["write_file"]("b/three.txt", "three\n", ctx)
    told = run("cat a/one.txt; echo more >> b/three.txt; rm -r a; ls", ctx)
    assert told == {"exit_code": 0, "stdout": "one\nthree\nb\n", "stderr": ""}
    assert (folder / "b" / "three.txt").read_text() == "three\nmore\n"


def test_a_program_works_in_the_workspace_with_the_standard_library_alone(
    ctx: Context[Any], folder: Path
) -> None:
    code = (
        "import sys, json, pathlib, sqlite3\n"
        "pathlib.Path('made').write_text('x')\n"
        "try:\n    import pydantic\n    print('pydantic')\n"
        "except ImportError: print('alone')\n"
        "print(__name__, sys.argv, sys.flags.isolated, sys.stdin.read())\n"
    )
    told = python(code, ctx)
    assert told == {"exit_code": 0, "stdout": "alone\n__main__ ['-'] 1 \n", "stderr": ""}
    assert (folder / "made").read_text() == "x"


def test_a_program_that_raises_shows_where(ctx: Context[Any]) -> None:
    told = python("def f():\n    raise ValueError('é')\nf()", ctx)
    assert told["exit_code"] == 1
    assert 'File "<code>", line 2, in f' in told["stderr"]
    assert "ValueError: é" in told["stderr"]
    assert "SyntaxError" in python("if", ctx)["stderr"]
    assert python("import sys; sys.exit(7)", ctx)["exit_code"] == 7


def test_a_program_may_be_given_packages(ctx: Context[Any], folder: Path) -> None:
    packages = folder.parent / "packages"
    (packages / "given").mkdir(parents=True)
    (packages / "given" / "__init__.py").write_text("there = 'yes'\n")
    tool = python_tool(packages=[packages])
    assert tool("import given; print(given.there)", ctx)["stdout"] == "yes\n"
    assert "No module" in python("import given", ctx)["stderr"]
    with pytest.raises(ConfigError, match="no folder"):
        python_tool(packages=[packages / "missing"])


def test_without_a_workspace_nothing_is_kept() -> None:
    ctx = Context[Any](timeout_s=20)
    assert shell("echo x > kept; ls", ctx)["stdout"] == "kept\n"
    assert shell("ls", ctx)["stdout"] == ""


def test_a_limit_is_a_result_that_says_so(ctx: Context[Any]) -> None:
    slow = shell_tool(limits=Limits(wall_s=0.3))("echo begun; sleep 60", ctx)
    assert slow["exit_code"] is None
    assert slow["stdout"] == "begun\n"
    assert "time limit" in slow["ended"]
    many = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    assert "processes" in python_tool(limits=Limits(processes=30))(many, ctx)["ended"]


def test_a_call_with_little_time_ends_before_the_calls_own_deadline(folder: Path) -> None:
    ctx = Context[Any](workspace=Workspace(folder), timeout_s=1.0)
    assert "time limit" in shell("sleep 60", ctx)["ended"]


def test_a_flood_of_output_keeps_its_head_and_tail(ctx: Context[Any]) -> None:
    told = shell("echo first; yes x | head -c 3000000; echo last", ctx)
    assert told["exit_code"] == 0
    assert told["stdout"].startswith("first\n")
    assert told["stdout"].endswith("last\n")
    assert "bytes left out" in told["stdout"]
    assert len(told["stdout"]) < 70_000


TRICKS = [
    "$(cat {secret})",
    "`cat {secret}`",
    "cat '{secret}'",
    "cat ''{secret}''",
    "c''at {secret}",
    "c\\at {secret}",
    "X=cat; $X {secret}",
    "{{ cat,{secret}; }}; cat {secret}",
    "true\ncat {secret}",
    "true; cat {secret}",
    "true && cat {secret}",
    "false || cat {secret}",
    "true & cat {secret}",
    "A=b env cat {secret}",
    "env -i /bin/cat {secret}",
    "eval 'cat {secret}'",
    "sh -c 'cat {secret}'",
    "echo 'cat {secret}' | sh",
    "sh <<E\ncat {secret}\nE",
    "cat < {secret}",
    "while read x; do echo $x; done < {secret}",
    ". {secret}",
    "ln -s {secret} l; cat l",
    "ln {secret} l; cat l",
    "cp {secret} l; cat l",
    "mv {secret} l; cat l",
    "cat ../secret",
    "cat ./../secret",
    "cat */../../secret",
    "cd ..; cat secret",
    "cd {folder} && cat secret",
    "find / -name secret -exec cat {{}} +",
    "tar -cf - {secret}",
    "dd if={secret}",
    "printf '%b' '\\143\\141\\164' | xargs -I@ @ {secret}",
    "base64 -d <<E | sh\nY2F0IC4uL3NlY3JldA==\nE",
    "cat /proc/1/root{secret}",
    "cat /proc/self/root/..{secret}",
    "cat /proc/1/cwd/secret",
    "cat /dev/fd/../../..{secret}",
    "exec 3<>{secret}; cat <&3",
    "chmod 777 {secret}; cat {secret}",
    "echo changed > {secret}",
    "echo changed >> {secret}",
    "tee {secret} < /dev/null",
    "rm -f {secret}",
    "rm -rf {folder}",
    "truncate -s 0 {secret}",
    "sed -i s/the/no/ {secret}",
    "touch -d 1990-01-01 {secret}",
    "mkdir {folder}/made",
    "kill -URG {pid}",
    "kill -URG -1",
    "sudo cat {secret}",
    "su -c 'cat {secret}'",
    "unshare -r cat {secret}",
    "nsenter -t 1 -m cat {secret}",
    "chroot / cat {secret}",
    "mount --bind {folder} .; cat secret",
    "ulimit -f unlimited; ulimit -u unlimited; cat {secret}",
    "trap '' TERM INT HUP; cat {secret}",
    "nohup cat {secret}",
    "setsid cat {secret}",
    "echo $CAIRN_TEST_SECRET; env; export -p",
    "cat /proc/self/environ /proc/*/environ",
    "exec 9<>/dev/tcp/127.0.0.1/1",
    "cat ~/.ssh/id_* ~/.netrc",
    "ﻍcat {secret}",
    "саt {secret}",
]


@pytest.mark.slow
def test_no_trick_of_the_shell_has_an_effect_outside(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not looked for needs no pattern: the command may say what it likes."""
    monkeypatch.setenv("CAIRN_TEST_SECRET", "the secret")
    secret = folder.parent / "secret"
    secret.write_text("the secret")
    secret.chmod(0o666)
    folder.parent.chmod(0o777)
    before = (secret.stat().st_mtime_ns, secret.stat().st_mode, secret.stat().st_nlink)
    context = Context[Any](workspace=Workspace(folder), timeout_s=25)
    words = {"secret": secret, "folder": folder.parent, "pid": os.getpid()}
    tricks = [each.format(**words) for each in TRICKS]
    code = f"""
import subprocess
for trick in {tricks!r}:
    try: done = subprocess.run(["sh", "-c", trick], capture_output=True, timeout=4, stdin=-3)
    except subprocess.TimeoutExpired: print("too slow", trick)
    else: print(done.stdout, done.stderr)
print("all tried")
"""
    told = python_tool(limits=Limits(output_bytes=1_000_000))(code, context)
    assert told["stdout"].endswith("all tried\n"), told
    assert "too slow" not in told["stdout"]
    assert "the secret" not in json.dumps(told)
    assert secret.read_text() == "the secret"
    after = (secret.stat().st_mtime_ns, secret.stat().st_mode, secret.stat().st_nlink)
    assert after == before
    assert sorted(each.name for each in folder.parent.iterdir() if each.name[0] != ".") == [
        "secret",
        "workspace",
    ]


def test_an_unsandboxed_tool_is_what_an_operator_asks_for(
    ctx: Context[Any], tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.write_text("of the host")
    tool = shell_tool(sandbox="unsandboxed")
    assert tool(f"cat {given}", ctx)["stdout"] == "of the host"
    told = python_tool(sandbox="unsandboxed")("import sys; print(sys.prefix)", ctx)
    assert told["stdout"].strip() == sys.base_prefix
    slow = shell_tool(sandbox="unsandboxed", limits=Limits(wall_s=0.2))
    with pytest.raises(TimeoutError):
        slow("sleep 60", ctx)


def test_options_that_cannot_be_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match="no rung"):
        shell_tool(sandbox="none")  # type: ignore[arg-type] # - that is the mistake
    with pytest.raises(ToolDefinitionError):
        shell_tool(name="no name")


def test_the_rung_stands_in_the_run_once_and_the_gate_is_the_same() -> None:
    script = [call("shell", command="echo one"), call("shell", command="echo two"), "done"]

    async def go(policy: Policy) -> tuple[str, list[ev.Event]]:
        agent = Agent("a", Scripted(script), tools=[shell_tool(effect="write")])
        async with Runtime(InMemoryStore(), [agent], policy=policy) as rt:
            run = await rt.run_async("a", "x", id="r")
            return run.status, [entry.event for entry in await rt.trace_async("r")]

    status, events = asyncio.run(go(Policy(effects={"write": "allow"})))
    assert status == "completed"
    told = [event for event in events if isinstance(event, ev.SandboxChosen)]
    assert told == [ev.SandboxChosen(rung=Sandbox().rung, tool="shell")]
    results = [bytes(event.result) for event in events if isinstance(event, ev.ToolCompleted)]
    assert [json.loads(each)["stdout"] for each in results] == ["one\n", "two\n"]
    status, events = asyncio.run(go(Policy()))
    assert status == "waiting"
    assert not [event for event in events if isinstance(event, ev.SandboxChosen)]
