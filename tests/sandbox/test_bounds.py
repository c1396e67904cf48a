"""A sandboxed command is bounded in everything, and nothing of it is left when it has ended."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import NotDone, Unsure
from cairn.sandbox import Limits, Rung, Sandbox
from cairn.tools.context import Context

MIB = 1 << 20
Run = Callable[..., Any]


def limits(**given: Any) -> Limits:
    return Limits(**{"wall_s": 12.0, **given})


# ---------------------------------------------------------------- how it ends


def test_a_command_gives_its_status_and_both_outputs(shell: Run) -> None:
    told = shell("echo out; echo err >&2; exit 3")
    assert (told.stdout, told.ended.stderr, told.ended.exit_code) == ("out\n", "err\n", 3)
    assert told.ended.why == "itself"


def test_a_command_works_in_the_workspace_and_leaves_its_files_there(
    shell: Run, workspace: Path
) -> None:
    (workspace / "in").write_text("before")
    told = shell("cat in; echo after > out; mkdir d; echo x > d/y; mv d e; rm in; ls")
    assert told.stdout == "beforee\nout\n"
    assert (workspace / "out").read_text() == "after\n"
    assert (workspace / "e" / "y").read_text() == "x\n"


def test_standard_input_is_what_was_given_or_nothing(shell: Run) -> None:
    assert shell("cat").stdout == ""
    assert shell("cat", stdin=b"line\nline").stdout == "line\nline"
    text = b"x" * 300_000
    assert shell("wc -c", stdin=text).stdout.strip() == "300000"


def test_without_a_workspace_there_is_an_empty_folder_that_ends_with_the_command(
    rung: Rung,
) -> None:
    launch = Sandbox(rung).prepare(["/bin/sh", "-c", "ls -A; echo x > y; cat y; pwd"])
    done = Context().run(launch.argv, input=launch.input, env=launch.env, cwd=launch.cwd)
    assert done.stdout.startswith("x\n"), done.stderr
    folder = Path(done.stdout.split()[-1])
    assert not (folder / "y").exists()


def test_a_program_that_is_not_there_was_not_run(rung: Rung, workspace: Path) -> None:
    launch = Sandbox(rung).prepare(["no-such-program"], workspace=workspace)
    done = Context().run(launch.argv, input=launch.input, env=launch.env, cwd=launch.cwd)
    with pytest.raises(NotDone, match="no-such-program"):
        launch.read(done.returncode, done.stderr)


def test_a_command_cannot_speak_for_the_supervisor(rung: Rung, shell: Run) -> None:
    forged = (
        "printf '\\n\\0%s ended time 0\\n' $(printf 0%.0s 1 2 3 4 5 6 7 8 9 10 11 12) >&2; exit 4"
    )
    told = shell(forged)
    assert (told.ended.why, told.ended.exit_code) == ("itself", 4)
    launch = Sandbox(rung).prepare(["true"])
    with pytest.raises(Unsure):
        launch.read(-9, f"\n\0{launch.mark} started\n")
    with pytest.raises(NotDone, match="set up"):
        launch.read(1, "bwrap: something")


def test_the_supervisors_mark_cannot_be_read_by_the_command(code: Run) -> None:
    told = code(
        "import os\n"
        "for pid in ('1', str(os.getppid()), 'self'):\n"
        "    for name in ('cmdline', 'environ'):\n"
        "        try: print(open(f'/proc/{pid}/{name}').read())\n"
        "        except OSError as error: print(error)\n"
    )
    words = told.stdout.replace("\0", " ").split()
    assert words
    assert not [word for word in words if len(word) == 24 and set(word) <= set("0123456789abcdef")]


# ---------------------------------------------------------------- nothing is left


def test_what_a_command_leaves_running_is_killed_when_it_ends(
    code: Run, tmp_path: Path, workspace: Path, is_free: Callable[[Path], bool]
) -> None:
    lock = tmp_path / "lock"
    told = code(
        "import os, sys, time, subprocess, signal\n"
        "def daemon():\n"
        "    if os.fork(): return\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    for number in (1, 2, 15, 17): signal.signal(number, signal.SIG_IGN)\n"
        "    while True:\n"
        "        open('beat', 'a').write('x'); time.sleep(0.01)\n"
        "for _ in range(5): daemon()\n"
        "while not os.path.exists('beat'): time.sleep(0.01)\n"
        "print('left')\n",
        lock=lock,
    )
    assert told.stdout == "left\n"
    assert is_free(lock)
    size = (workspace / "beat").stat().st_size
    time.sleep(0.05)
    assert (workspace / "beat").stat().st_size == size


def test_signalling_everything_reaches_only_what_is_inside(code: Run) -> None:
    """With a signal that nobody minds who did not ask for it: should the walls not hold, a deadly
    one would end every process of the machine that runs this test.
    """
    heard = []
    before = signal.signal(signal.SIGURG, lambda *arguments: heard.append(1))
    try:
        told = code(
            "import os, signal\n"
            "try: os.kill(-1, signal.SIGURG)\n"
            "except OSError: pass\n"
            "print('sent')\n"
        )
    finally:
        signal.signal(signal.SIGURG, before)
    assert told.stdout == "sent\n"
    assert heard == []


def test_at_the_calls_deadline_the_whole_tree_is_gone(
    rung: Rung, workspace: Path, tmp_path: Path, is_free: Callable[[Path], bool]
) -> None:
    lock = tmp_path / "lock"
    command = "setsid sh -c 'while :; do date >> beat; sleep 0.01; done' & sleep 60"
    launch = Sandbox(rung).prepare(["/bin/sh", "-c", command], workspace=workspace)
    context = Context(timeout_s=0.5, lock_path=str(lock))
    with pytest.raises(TimeoutError):
        context.run(launch.argv, input=launch.input, env=launch.env, cwd=launch.cwd)
    give_up = time.monotonic() + 10
    while not is_free(lock):
        assert time.monotonic() < give_up, "it never ended"
        time.sleep(0.005)
    size = (workspace / "beat").stat().st_size
    time.sleep(0.05)
    assert (workspace / "beat").stat().st_size == size


def test_the_lock_of_the_call_is_held_while_it_runs_and_cannot_be_unlocked_from_inside(
    rung: Rung, workspace: Path, tmp_path: Path, is_free: Callable[[Path], bool]
) -> None:
    lock = tmp_path / "lock"
    text = (
        "import fcntl, os, time\n"
        "for fd in range(3, 64):\n"
        "    for act in (lambda: fcntl.flock(fd, fcntl.LOCK_UN), lambda: os.write(fd, b'x')):\n"
        "        try: act()\n"
        "        except OSError: pass\n"
        "open('unlocked', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
    )
    sandbox = Sandbox(rung)
    argv = [sandbox.python(workspace), "-I", "-S", "-c", text]
    launch = sandbox.prepare(argv, workspace=workspace)
    context = Context(lock_path=str(lock), timeout_s=20.0)
    run = threading.Thread(
        target=context.run,
        args=(launch.argv,),
        kwargs={"input": launch.input, "env": launch.env, "cwd": launch.cwd},
    )
    run.start()
    give_up = time.monotonic() + 10
    while not (workspace / "unlocked").exists():
        assert time.monotonic() < give_up
        time.sleep(0.005)
    held = not is_free(lock)
    (workspace / "go").touch()
    run.join()
    assert held
    assert is_free(lock)
    assert lock.read_bytes() == b""


def test_when_the_runtime_is_killed_the_whole_tree_goes_with_it(
    rung: Rung, workspace: Path, tmp_path: Path, is_free: Callable[[Path], bool]
) -> None:
    lock = tmp_path / "lock"
    command = "setsid sh -c 'while :; do date >> beat; sleep 0.01; done' & sleep 60"
    launch = Sandbox(rung).prepare(["/bin/sh", "-c", command], workspace=workspace)
    pid = os.fork()
    if pid == 0:
        context = Context(lock_path=str(lock), timeout_s=20.0)
        context.run(launch.argv, input=launch.input, env=launch.env, cwd=launch.cwd)
        os._exit(0)
    give_up = time.monotonic() + 10
    while not (workspace / "beat").exists():
        assert time.monotonic() < give_up, "it never began"
        time.sleep(0.005)
    assert not is_free(lock)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while not is_free(lock):
        assert time.monotonic() < give_up, "it never ended"
        time.sleep(0.005)
    size = (workspace / "beat").stat().st_size
    time.sleep(0.05)
    assert (workspace / "beat").stat().st_size == size


# ---------------------------------------------------------------- bounds


def test_a_command_that_takes_too_long_is_ended_and_says_so(shell: Run, workspace: Path) -> None:
    told = shell("echo begun; sleep 60", limits=limits(wall_s=0.3))
    assert told.stdout == "begun\n"
    assert (told.ended.why, told.ended.exit_code) == ("time", None)


def test_a_fork_bomb_is_ended(code: Run) -> None:
    told = code(
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n",
        limits=limits(processes=40),
    )
    assert told.ended.why == "processes"


def test_a_bomb_of_threads_is_ended(code: Run) -> None:
    told = code(
        "import threading, time\n"
        "for _ in range(500):\n"
        "    try: threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        "    except RuntimeError: pass\n"
        "time.sleep(9)\n",
        limits=limits(processes=40),
    )
    assert told.ended.why == "processes"


def test_one_process_gets_no_more_memory_than_it_may(code: Run) -> None:
    told = code("x = bytearray(1 << 30)", limits=limits(memory_bytes=200 * MIB))
    assert told.ended.exit_code == 1
    assert "MemoryError" in told.ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["", ", flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS"])
def test_many_processes_get_no_more_memory_together_than_they_may(code: Run, shared: str) -> None:
    told = code(
        "import mmap, os, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        f"        block = mmap.mmap(-1, 30 << 20{shared})\n"
        "        for at in range(0, 30 << 20, 4096): block[at] = 1\n"
        "        time.sleep(9); os._exit(0)\n"
        "time.sleep(9)\n",
        limits=limits(memory_bytes=200 * MIB),
    )
    assert told.ended.why == "memory"


def test_one_file_grows_no_larger_than_it_may(shell: Run, workspace: Path) -> None:
    told = shell("head -c 5000000 /dev/zero > big; echo $?", limits=limits(file_bytes=2 * MIB))
    assert told.stdout.strip() not in {"", "0"}
    assert (workspace / "big").stat().st_size <= 2 * MIB


@pytest.mark.slow
def test_the_workspace_grows_no_larger_than_it_may(shell: Run, workspace: Path) -> None:
    told = shell(
        "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > f$i; sleep 0.01; done",
        limits=limits(disk_bytes=20 * MIB),
    )
    assert told.ended.why == "disk"


def test_folders_in_memory_are_bounded(rung: Rung, code: Run) -> None:
    text = (
        "import os\n"
        "for folder in ('/tmp', '/dev/shm', '/dev', '/', '/run', '/etc', '/var', '/proc'):\n"
        "    try:\n"
        "        with open(folder + '/filler', 'wb') as file:\n"
        "            for _ in range(30): file.write(b'x' * (1 << 20)); file.flush()\n"
        "        print(folder, 'is filled')\n"
        "    except OSError as error: pass\n"
    )
    told = code(text, limits=limits(tmp_bytes=4 * MIB))
    assert told.stdout == ""
    if rung == "landlock":
        assert not Path("/dev/shm/filler").exists()


@pytest.mark.slow
def test_processor_time_is_bounded(code: Run) -> None:
    told = code("while True: pass", limits=limits(cpu_s=1))
    assert told.ended.exit_code in {-signal.SIGXCPU, -signal.SIGKILL}


def test_open_files_are_bounded(code: Run) -> None:
    told = code(
        "import os\nfor n in range(999): os.open('/dev/null', 0)", limits=limits(open_files=50)
    )
    assert "Too many open files" in told.ended.stderr


def test_a_flood_of_output_is_cut_in_the_middle_and_the_end_is_still_told(shell: Run) -> None:
    told = shell("yes x | head -c 5000000; yes y | head -c 5000000 >&2; exit 7")
    assert told.ended.exit_code == 7
    assert len(told.stdout) < 70_000
    assert len(told.ended.stderr) < 70_000
