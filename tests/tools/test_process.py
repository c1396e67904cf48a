"""A child process is bounded in time and output, and never outlives its call unnoticed."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cairn.errors import SyncInsideLoop, Unsure
from cairn.tools import process
from cairn.tools.context import Context
from cairn.tools.process import Completed, Process

ESCAPE = """
import subprocess, sys
child = subprocess.Popen(
    ["sleep", "60"], start_new_session=True, close_fds=False,
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)
print(child.pid)
"""


@pytest.fixture(autouse=True)
def _others() -> None:
    """Processes that other tests keep for their whole session are not ours to judge."""
    OTHERS.clear()
    OTHERS.update(children())


OTHERS: set[str] = set()


def children() -> list[str]:
    """Pids of this process's own children that are new in this test, zombies included."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,ppid=,comm=", "-A"], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    ours = [row[0] for row in rows if row[1] == str(os.getpid()) and row[2] != "ps"]
    return [pid for pid in ours if pid not in OTHERS]


def test_a_command_gives_its_status_and_both_outputs() -> None:
    done = Context().run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert not done.truncated
    assert done.duration_s > 0


def test_a_command_reads_input_folder_and_environment(tmp_path: Path) -> None:
    here = Context().run(["pwd"], cwd=tmp_path)
    assert Path(here.stdout.strip()).resolve() == tmp_path.resolve()
    text = "é" * 200_000
    assert Context().run(["cat"], input=text).stdout == text
    assert Context().run(["cat"], input=b"raw").stdout == "raw"
    assert Context().run(["cat"]).stdout == ""
    path = os.environ["PATH"]
    assert Context().run(["sh", "-c", "echo $A"], env={"A": "b", "PATH": path}).stdout == "b\n"


def test_a_command_may_leave_its_input_unread() -> None:
    assert Context().run(["true"], input="x" * 1_000_000).returncode == 0


def test_a_text_instead_of_a_list_is_refused_with_the_reason() -> None:
    with pytest.raises(TypeError, match="shell"):
        Context().run("ls -l")
    with pytest.raises(ValueError, match="empty"):
        Context().run([])


def test_what_cannot_be_started_raises_the_systems_own_error() -> None:
    with pytest.raises(FileNotFoundError):
        Context().run(["no-such-program-anywhere"])
    assert children() == []


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert Context().run(["printf", r"\377"]).stdout == "\ufffd"


def test_a_flood_of_output_keeps_head_and_tail_and_says_so() -> None:
    flood = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"
    done = Context().run(["sh", "-c", flood], max_output=1000)
    assert done.truncated
    assert done.stdout.startswith("line 0\n")
    assert done.stdout.endswith("line 19999\n")
    assert "bytes left out" in done.stdout
    assert len(done.stdout) < 1100


def test_a_flood_never_fills_the_memory() -> None:
    tap = process._Tap(1000)
    for _ in range(100):
        tap.feed(b"x" * 65_536)
        assert len(tap._head) + len(tap._tail) <= 1000
    assert tap.left_out == 100 * 65_536 - 1000


def test_at_its_deadline_the_whole_group_is_killed(tmp_path: Path, until, is_free) -> None:
    lock = tmp_path / "c1.lock"
    stubborn = "trap '' TERM; sleep 60 & sleep 60 & wait; sleep 60"
    with pytest.raises(TimeoutError, match="killed"):
        Context(lock_path=str(lock)).run(["sh", "-c", stubborn], timeout=0.1)
    until(lambda: is_free(lock))
    assert children() == []


def test_a_command_is_asked_to_end_before_it_is_killed(tmp_path: Path, until) -> None:
    ready, trace = tmp_path / "ready", tmp_path / "trace"
    polite = f"trap 'echo bye > {trace}; exit 0' TERM; touch {ready}; sleep 60 & wait"
    context = Context()

    def end_when_ready() -> None:
        until(ready.exists)
        context.close()

    thread = threading.Thread(target=end_when_ready)
    thread.start()
    with pytest.raises(Unsure):
        context.run(["sh", "-c", polite])
    thread.join()
    assert trace.read_text() == "bye\n"


def test_the_calls_own_deadline_counts_too() -> None:
    now = [100.0]
    context = Context(timeout_s=5, monotonic=lambda: now[0])
    assert context.remaining() == 5
    assert context.run(["true"], timeout=50).returncode == 0
    now[0] = 106.0
    assert context.remaining() == 0
    with pytest.raises(TimeoutError):
        context.run(["true"])


def test_what_a_command_leaves_in_its_group_ends_with_it(tmp_path: Path, until, is_free) -> None:
    lock = tmp_path / "c1.lock"
    done = Context(lock_path=str(lock)).run(["sh", "-c", "sleep 60 & echo started"])
    assert done.stdout == "started\n"
    until(lambda: is_free(lock))


def test_a_flood_from_what_is_left_behind_does_not_hold_up_the_command() -> None:
    assert Context().run(["sh", "-c", "yes & echo started"], max_output=100).returncode == 0


def test_the_lock_is_held_while_a_command_runs(tmp_path: Path, until, is_free) -> None:
    lock = tmp_path / "c1.lock"
    context = Context(lock_path=str(lock))
    go = tmp_path / "go"
    waiting = f"while [ ! -e {go} ]; do sleep 0.01; done"
    thread = threading.Thread(target=lambda: context.run(["sh", "-c", waiting]))
    thread.start()
    until(lambda: lock.exists() and not is_free(lock))
    go.touch()
    thread.join()
    assert is_free(lock)


def test_a_descendant_that_escapes_its_group_still_holds_the_lock(
    tmp_path: Path, until, is_free
) -> None:
    lock = tmp_path / "c1.lock"
    done = Context(lock_path=str(lock)).run([sys.executable, "-c", ESCAPE])
    escaped = int(done.stdout)
    assert not is_free(lock)
    os.kill(escaped, signal.SIGKILL)
    until(lambda: is_free(lock))


def test_several_commands_of_a_call_may_run_at_once(tmp_path: Path) -> None:
    context = Context(lock_path=str(tmp_path / "c1.lock"))

    async def both() -> list[Completed]:
        waits = [context.run_async(["sh", "-c", "sleep 0.05; echo $0", n]) for n in "ab"]
        return await asyncio.gather(*waits)

    assert [done.stdout for done in asyncio.run(both())] == ["a\n", "b\n"]


def test_a_lock_held_by_somebody_else_for_long_is_an_error(tmp_path: Path, monkeypatch) -> None:
    import fcntl

    monkeypatch.setattr(process, "LOCK_TRIES", 2)
    lock = tmp_path / "c1.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="held by somebody else"):
            Context(lock_path=str(lock)).run(["true"])


@pytest.mark.kill
def test_the_lock_outlives_the_runtime_and_ends_with_the_command(
    tmp_path: Path, until, is_free
) -> None:
    lock = tmp_path / "c1.lock"
    pid = tmp_path / "pid"
    code = (
        "from cairn.tools.context import Context;"
        f"Context(lock_path={str(lock)!r}).run(['sh', '-c', 'echo $$ > {pid}.new; "
        f"mv {pid}.new {pid}; exec sleep 60'])"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as runtime:
        until(pid.exists)
        runtime.kill()
    assert not is_free(lock)
    os.killpg(int(pid.read_text()), signal.SIGKILL)
    until(lambda: is_free(lock))


def test_a_runtime_that_exits_leaves_nothing_running(tmp_path: Path, until, is_free) -> None:
    lock = tmp_path / "c1.lock"
    code = (
        "import threading, time; from cairn.tools import process;"
        "from cairn.tools.context import Context;"
        f"c = Context(lock_path={str(lock)!r});"
        "threading.Thread(target=lambda: c.run(['sleep', '60']), daemon=True).start();"
        "[time.sleep(0.01) for _ in range(1000) if not process._running]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    until(lambda: is_free(lock))


def test_closing_the_context_kills_what_runs_in_another_thread(
    tmp_path: Path, until, is_free
) -> None:
    lock = tmp_path / "c1.lock"
    context = Context(lock_path=str(lock))
    raised: list[BaseException] = []

    def work() -> None:
        try:
            context.run(["sleep", "60"])
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: lock.exists() and not is_free(lock))
    context.close()
    context.close()
    thread.join()
    assert isinstance(raised[0], Unsure)
    assert is_free(lock)
    assert children() == []


def test_a_closed_context_starts_nothing_and_claims_nothing(tmp_path: Path) -> None:
    context = Context()
    context.close()
    assert context.closed
    with pytest.raises(Unsure):  # not NotDone: an earlier effect of the call may have happened
        context.run(["touch", str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()
    stopped = Process(["true"])
    stopped.stop()
    with pytest.raises(Unsure):
        stopped.run(None)


def test_on_a_loop_the_sync_form_is_refused_and_the_async_one_works() -> None:
    async def main() -> Completed:
        with pytest.raises(SyncInsideLoop, match="run_async"):
            Context().run(["true"])
        with pytest.raises(FileNotFoundError):
            await Context().run_async(["no-such-program-anywhere"])
        with pytest.raises(TimeoutError):
            await Context().run_async(["sleep", "60"], timeout=0.05)
        return await Context().run_async(["echo", "hi"])

    assert asyncio.run(main()).stdout == "hi\n"
    assert children() == []


def test_a_cancelled_task_has_killed_its_command_when_it_ends(
    tmp_path: Path, until, is_free
) -> None:
    lock = tmp_path / "c1.lock"

    async def main() -> None:
        context = Context(lock_path=str(lock))
        task = asyncio.create_task(context.run_async(["sleep", "60"]))
        await asyncio.to_thread(until, lambda: lock.exists() and not is_free(lock))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_free(lock)

    asyncio.run(main())
    assert children() == []


def test_progress_is_short_clean_and_ends_with_the_call() -> None:
    seen: list[tuple[str, float | None]] = []
    context = Context(on_progress=lambda message, fraction: seen.append((message, fraction)))
    context.progress("half\0", 0.5)
    context.progress("x" * 1000, 7)
    context.progress("?", float("nan"))
    context.close()
    context.progress("too late")
    Context().progress("nobody listens")
    assert seen == [("half␀", 0.5), ("x" * 499 + "…", 1.0), ("?", None)]


def test_nothing_is_left_open() -> None:
    def opened() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    Context().run(["true"])
    gc.collect()  # what other tests have left is closed before it is counted
    before = opened()
    for _ in range(20):
        Context().run(["true"], input="x")
        with pytest.raises(TimeoutError):
            Context().run(["sleep", "60"], timeout=0.001)
    assert opened() == before
