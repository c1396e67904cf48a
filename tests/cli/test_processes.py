"""Real processes: Ctrl-C, SIGTERM and kill -9; decisions from outside while a run is at work."""

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import SRC, Cairn, Process, wait_for

pytestmark = pytest.mark.slow
Start = Callable[..., Process]
INT, TERM = signal.SIGINT, signal.SIGTERM


def effects() -> list[str]:
    file = Path("effects.txt")
    return file.read_text().splitlines() if file.exists() else []


def events(cairn: Cairn, run: str) -> list[str]:
    said = cairn("trace", run, "--json")
    return [e["name"] for e in said.objects] if said.code == 0 else []


def napping(process: Start, *words: str, **env: str) -> Process:
    """A run with its tool at work."""
    Path("napping").unlink(missing_ok=True)
    started = process("run", "sleepy", "go", "--id", "a", *words, **env)
    wait_for(Path("napping").exists, "the tool's start")
    return started


def test_ctrl_c_pauses_waits_for_the_tool_and_exits_6_and_resume_goes_on(
    cairn: Cairn, process: Start
) -> None:
    run = napping(process)
    run.signal(INT)
    wait_for(lambda: "run.pause_requested" in events(cairn, "a"), "the pause")
    assert run.running, "the tool is still at work"
    Path("wake").touch()
    said = run.end()
    assert said.code == 6, said
    assert "pausing: what is in flight is waited for" in said.out
    assert effects() == ["nap"]
    assert events(cairn, "a")[-1] == "tool.completed"
    assert cairn("resume", "a").code == 0
    assert effects() == ["nap"], "what was done is not done again"


def test_ctrl_c_twice_cancels_at_once_and_exits_4(cairn: Cairn, process: Start) -> None:
    run = napping(process)
    run.signal(INT)
    wait_for(lambda: "run.pause_requested" in events(cairn, "a"), "the pause")
    begun = time.monotonic()
    run.signal(INT)
    said = run.end()
    assert said.code == 4, said
    assert time.monotonic() - begun < 10, "the tool would have slept for 20 s"
    assert events(cairn, "a")[-1] == "run.cancelled"
    assert not effects()


def test_a_third_ctrl_c_ends_the_process_at_once_and_another_ends_the_run(
    cairn: Cairn, process: Start
) -> None:
    run = process("run", "mule", "go", "--id", "a")
    wait_for(Path("napping").exists, "the tool's start")
    for asked in ("run.pause_requested", "run.cancel_requested"):
        run.signal(INT)
        wait_for(lambda asked=asked: asked in events(cairn, "a"), asked)
    run.signal(INT)
    assert run.end(5).code == 130
    assert cairn("run", "mule", "go", "--id", "a").code == 4


def test_sigterm_lets_the_tool_land_and_leaves_the_run_to_be_gone_on_with(
    cairn: Cairn, process: Start
) -> None:
    run = napping(process)
    run.signal(TERM)
    time.sleep(0.3)
    Path("wake").touch()
    said = run.end()
    assert said.code == 143, said
    assert cairn("runs", "--json").objects[0]["status"] == "running"
    assert cairn("run", "sleepy", "go", "--id", "a").code == 0
    assert effects() == ["nap"]


def test_after_kill_9_the_same_command_goes_on_and_repeats_only_the_read(
    cairn: Cairn, process: Start
) -> None:
    napping(process).kill()
    assert not effects()
    Path("wake").touch()
    said = cairn("run", "sleepy", "go", "--id", "a")
    assert said.code == 0, said
    assert effects() == ["nap"]
    assert events(cairn, "a").count("tool.started") == 2


def test_after_kill_9_runs_and_inbox_say_that_nobody_drives_the_run(
    cairn: Cairn, process: Start
) -> None:
    run = napping(process)
    assert "running, driven" in cairn("runs").out
    assert cairn("inbox").out == "nothing waits\n"
    run.kill()
    assert "running, not driven" in cairn("runs").out
    assert cairn("runs", "--json").objects[0]["leased"] is False
    assert "run a is running and nobody drives it. To go on: cairn resume a" in cairn("inbox").out


def test_after_kill_9_an_unknown_payment_is_not_repeated_but_asked_about(
    cairn: Cairn, process: Start
) -> None:
    cairn("run", "payer", "go", "--id", "a")
    cairn("approve", "a/1")
    run = process("resume", "a")
    wait_for(Path("paying").exists, "the payment")
    run.kill()
    said = cairn("run", "payer", "go", "--id", "a")
    assert said.code == 5
    assert effects() == ["pay 7"]
    assert "cairn resolve a/c1 --happened --result TEXT" in said.out
    cairn("resolve", "a/c1", "--happened", "--result", "it is paid")
    assert cairn("run", "payer", "go", "--id", "a").code == 0
    assert effects() == ["pay 7"]


def test_decisions_of_a_second_process_reach_the_one_at_work(cairn: Cairn, process: Start) -> None:
    worker = process("work")
    for run in ("a", "b"):
        assert cairn("run", "shop", "go", "--id", run).code == 5
    assert cairn("approve", "a/1", "--by", "ada").code == 0
    assert cairn("deny", "b/1", "-m", "no").code == 0

    def over() -> bool:
        return {r["status"] for r in cairn("runs", "--json").objects} == {"completed"}

    wait_for(over, "the end of both runs")
    worker.signal(TERM)
    said = worker.end()
    assert said.code == 0, said
    assert effects() == ["refund 7 400"]
    assert "a   10 run.completed" in said.out


def test_pause_and_cancel_of_a_second_process_reach_the_one_at_work(
    cairn: Cairn, process: Start
) -> None:
    run = napping(process)
    assert cairn("pause", "a").code == 0
    assert cairn("cancel", "a", "-m", "enough").code == 0
    said = run.end()
    assert said.code == 4, said
    assert "cancelled. enough" in said.out


def test_a_second_run_command_follows_the_first_and_ends_with_it(
    cairn: Cairn, process: Start
) -> None:
    first = napping(process)
    second = process("run", "sleepy", "go", "--id", "a")
    time.sleep(1)
    Path("wake").touch()
    one, two = first.end(), second.end()
    assert (one.code, two.code) == (0, 0)
    assert "Slept." in two.out
    assert effects() == ["nap"]


def test_a_worker_drains_on_the_first_signal(cairn: Cairn, process: Start) -> None:
    napping(process).kill()
    Path("napping").unlink()
    worker = process("work")
    wait_for(Path("napping").exists, "the tool's second start")
    worker.signal(INT)
    time.sleep(0.5)
    assert worker.running, "the tool is still at work"
    Path("wake").touch()
    said = worker.end()
    assert said.code == 0, said
    assert "ending: nothing new is started" in said.out
    assert events(cairn, "a")[-1] == "tool.completed"


def test_a_worker_ends_at_once_on_the_second_signal_and_another_takes_over(
    cairn: Cairn, process: Start
) -> None:
    napping(process).kill()
    Path("napping").unlink()
    worker = process("work")
    wait_for(Path("napping").exists, "the tool's second start")
    worker.signal(TERM)
    time.sleep(0.5)
    worker.signal(TERM)
    assert worker.end(5).code == 143
    Path("wake").touch()
    assert cairn("work", "--until-idle").code == 0
    assert cairn("runs", "--json").objects[0]["status"] == "completed"


def test_a_reader_that_goes_away_ends_the_output_and_not_the_run(
    cairn: Cairn, process: Start
) -> None:
    run = napping(process)
    run.stop_reading()
    Path("wake").touch()
    assert run.end().code == 0
    assert events(cairn, "a")[-1] == "run.completed"


# ---------------------------------------------------------------- terminals


def on_terminal(*words: str, keys: dict[str, str], seconds: float = 15) -> tuple[str, int]:
    """What a command shows on a terminal, and its exit code; `keys` is what to type at what."""
    pid, terminal = pty.fork()
    if pid == 0:
        env = {**os.environ, "PYTHONPATH": str(SRC), "TERM": "xterm-256color", "COLUMNS": "100"}
        os.execve(sys.executable, [sys.executable, "-m", "cairn", *words], env)
    shown, ends = "", time.monotonic() + seconds
    while time.monotonic() < ends:
        if not select.select([terminal], [], [], 0.05)[0]:
            continue
        try:
            shown += os.read(terminal, 65536).decode("utf-8", "replace")
        except OSError:
            break
        for at in [at for at in keys if at in shown]:
            os.write(terminal, keys.pop(at).encode())
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return shown, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_live_view_ends_with_the_text_and_nothing_of_itself(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAP", "1")
    shown, code = on_terminal("run", "sleepy", "go", "--id", "a", keys={})
    assert code == 0, shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "● a · running · step 1" in plain
    assert "c1 nap(" in plain
    assert "left: $" in plain
    assert "49 steps" in plain
    tail = plain.rstrip().splitlines()
    assert tail[-2].endswith("Slept.")
    assert tail[-1].startswith("run a · completed · 2 steps · 1 call")


@pytest.mark.usefixtures("desk")
def test_ctrl_c_on_a_terminal_pauses_and_once_more_cancels() -> None:
    keys = {"tool.started": "\x03", "pausing": "\x03"}
    shown, code = on_terminal("run", "sleepy", "go", "--id", "a", keys=keys)
    assert code == 4, shown
    assert "cancelling" in shown


@pytest.mark.usefixtures("desk")
def test_a_hostile_answer_sends_no_escape_of_its_own_to_a_terminal() -> None:
    shown, code = on_terminal("run", "hostile", "go", "--id", "a", "--approvals", "none", keys={})
    assert code == 0, shown
    for bad in ("\x1b]0;owned", "\x07", "\x9b", "\u202e"):
        assert bad not in shown
    assert "␛]0;owned␇" in shown


@pytest.mark.usefixtures("desk")
def test_an_approval_is_given_at_the_prompt_of_a_terminal() -> None:
    keys = {"you> ": "go\r", "[l]ater: ": "y\r", "paid back.": "\x04"}
    shown, code = on_terminal("chat", "shop", keys=keys)
    assert code == 0, shown
    assert "Order 7 is paid back." in shown
