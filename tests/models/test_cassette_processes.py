"""Cassettes among processes: recorded here, replayed there, killed, and shared by many runs."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.models.tapedeck import (
    CHILD,
    ROOT,
    Flaky,
    ask,
    asking,
    exchanges,
    record,
    run_child,
    said,
)

from cairn import (
    Agent,
    Delta,
    Discard,
    ErrorClass,
    ModelError,
    Policy,
    Runtime,
    Scripted,
    call,
    tool,
)
from cairn.models.cassette import Cassette
from cairn.ports import ModelRequest


@pytest.fixture(autouse=True)
def _no_mode_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAIRN_CASSETTE", raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


def test_another_process_replays_what_this_one_recorded(path: Path) -> None:
    record(path, Flaky("from here"), asking())
    child = run_child("print(said(Cassette(path, 'flaky:one'), run='z', turn=5))", path)
    assert child.stdout == "from here\n", child.stderr


def test_two_processes_do_not_record_one_tape(path: Path) -> None:
    code = "Cassette(path, Scripted(['x']), mode='record')"
    with Cassette(path, Flaky("a"), mode="record") as tape:
        child = run_child(code, path)
        assert "is being recorded by another process. Wait for its end" in child.stderr
        ask(tape, asking())
    assert said(Cassette(path), asking()) == ["a"]
    assert run_child(code, path).returncode == 0


def test_a_forked_child_does_not_write_its_parents_tape(path: Path) -> None:
    code = (
        "tape = Cassette(path, Scripted(['x']), mode='record')\n"
        "if os.fork() == 0:\n"
        "    try: said(tape)\n"
        "    except Exception as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    child = run_child(code, path)
    assert "before this process was forked" in child.stdout, child.stderr


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    code = (
        "folder = os.path.dirname(path)\n"
        "os.chmod(folder, 0o555)\n"
        "import cairn.models.cassette.recording\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "try: Cassette(path, Scripted(['x']), mode='record')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    child = run_child(code, tmp_path / "tape.jsonl")
    tmp_path.chmod(0o755)
    assert child.stdout.startswith("ConfigError cassette: "), child.stderr
    assert "cannot be written (Permission denied)" in child.stdout


@pytest.mark.kill
def test_a_killed_recording_keeps_every_exchange_that_was_done(path: Path) -> None:
    code = (
        "tape = Cassette(path, Scripted(lambda r: 'y' * 20_000), mode='record')\n"
        "for n in range(1_000_000):\n"
        "    said(tape, f'question {n}', turn=n)\n"
        "    print(n, flush=True)\n"
    )
    for wanted in (1, 30, 120):
        path.unlink(missing_ok=True)
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD + code, str(path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        assert child.stdout is not None
        for _ in range(wanted):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        done = wanted + len(child.stdout.read().splitlines())
        child.stdout.close()
        child.wait()
        tape = Cassette(path)
        assert said(tape, *(asking(f"question {n}") for n in range(done)))
        assert len(tape.unused()) <= 1


RUN = """
from cairn import Agent, Policy, Runtime, call, tool

folder, dies = os.path.dirname(path), os.environ.get("DIES_AT", "")

@tool(effect="write", recovery="repeat")
def note(n: int) -> str:
    'Note a number.'
    if str(n) == dies:
        os.kill(os.getpid(), 9)
    with open(os.path.join(folder, "effects"), "a") as file:
        file.write(f"{n} ")
    return f"noted {n}"

allow = Policy(effects={"write": "allow"})
with Runtime(path + ".db", [Agent("a", Cassette(path), tools=[note])], policy=allow) as rt:
    print(rt.run("a", "go", id="one").text)
"""


@pytest.mark.kill
def test_a_run_that_is_killed_in_a_replay_goes_on_with_the_same_answers(path: Path) -> None:
    busy = ModelError(ErrorClass.OVERLOADED, "busy", retry_after_s=0.001)
    script = [call("note", n=0), busy, call("note", n=1), call("note", n=2), "all noted"]
    with Cassette(path, Scripted(script), mode="record") as tape:
        allow = Policy(effects={"write": "allow"})
        with Runtime(":memory:", [Agent("a", tape, tools=[note])], policy=allow) as rt:
            assert rt.run("a", "go").text == "all noted"
    for dies_at in ("0", "1", "2"):
        child = run_child(RUN, path, DIES_AT=dies_at)
        assert child.returncode == -signal.SIGKILL, child.stderr
    child = run_child(RUN, path)
    assert child.stdout == "all noted\n", child.stderr
    assert (path.parent / "effects").read_text() == "0 1 2 "


@tool(effect="write")
async def note(n: int) -> str:
    """Note a number."""
    await asyncio.sleep(0)
    return f"noted {n}"


def _echo(request: ModelRequest) -> Any:
    text = request.messages[0].parts[0].content
    if request.turn < 2:
        return call("note", n=request.turn + 10 * int(text))
    return f"done {text}"


def _runs(model: Any) -> list[str]:
    async def go() -> list[str]:
        agent = Agent("a", model, tools=[note])
        allow = Policy(effects={"write": "allow"})
        async with Runtime(":memory:", [agent], policy=allow) as rt:
            runs = await asyncio.gather(*(rt.run_async("a", str(n)) for n in range(20)))
        assert all(run.ok for run in runs)
        return [run.text for run in runs]

    return asyncio.run(go())


def test_twenty_runs_at_once_record_and_replay_one_tape(path: Path) -> None:
    with Cassette(path, Scripted(_echo), mode="record") as tape:
        first = _runs(tape)
        assert first == [f"done {n}" for n in range(20)]
    assert len(exchanges(path)) == 60
    tape = Cassette(path)
    assert _runs(tape) == first
    assert not tape.unused()


def test_a_stream_that_broke_is_discarded_and_tried_again_in_a_replay_too(path: Path) -> None:
    cut = ModelError(ErrorClass.STREAM_INTERRUPTED, "cut", retry_after_s=0.001)
    inner = Flaky(cut, "whole", shown="half ")

    def shown(model: Cassette) -> list[Any]:
        async def go() -> list[Any]:
            async with Runtime(":memory:", [Agent("a", model)]) as rt:
                seen = [one async for one in rt.stream_async("a", "go")]
            return [one for one in seen if isinstance(one, Delta | Discard)]

        return asyncio.run(go())

    with Cassette(path, inner, mode="record") as tape:
        shown(tape)
    kinds = [type(one) for one in shown(Cassette(path))]
    assert kinds == [Delta, Discard, Delta]
