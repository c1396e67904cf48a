"""One child process of a tool: bounded in time and output, ended with all its descendants.

It runs in a session and process group of its own. It inherits a lock file that stays locked as
long as any descendant which inherited it lives: so another process can prove that it is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import IO, Self

from cairn.core.messages import Record
from cairn.errors import Unsure

TERM_GRACE_S = 0.5
"""Between SIGTERM and SIGKILL."""
LINGER_S = 0.2
"""How long output is still read after the process itself has ended."""
TICK_S = 0.05
"""How often a waiting thread looks whether it shall stop."""
REAP_S = 5.0
LOCK_TRIES = 100
CHUNK = 65_536
HEAD_SHARE = 0.6


class Completed(Record):
    """What came of a process.

    Args:
        returncode: Exit status; minus the signal's number when a signal ended it.
        stdout, stderr: Output as UTF-8 text, undecodable bytes replaced.
        truncated: Whether output was left out in the middle; a note stands there.
        duration_s: How long it ran.
    """

    returncode: int
    stdout: str
    stderr: str
    truncated: bool = False
    duration_s: float = 0.0


class _End(Enum):
    DONE = auto()
    DEADLINE = auto()
    STOPPED = auto()


class _Tap:
    """Keeps the head and the tail of a stream, never more than `limit` bytes and a chunk."""

    def __init__(self, limit: int) -> None:
        self._head_limit = int(limit * HEAD_SHARE)
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0

    def feed(self, chunk: bytes) -> None:
        room = self._head_limit - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[max(room, 0) :]
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self.left_out += excess

    def text(self) -> str:
        if not self.left_out:
            return (self._head + self._tail).decode(errors="replace")
        note = f"\n[… {self.left_out} bytes left out …]\n"
        return self._head.decode(errors="replace") + note + self._tail.decode(errors="replace")


class Process:
    """One run of one command. `run` blocks in the calling thread, `stop` is for any other."""

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        max_output: int = 1_000_000,
        lock_path: str = "",
    ) -> None:
        if isinstance(argv, str | bytes):
            raise TypeError(
                'argv must be a list such as ["git", "log"], not one text: a text would need a '
                "shell to take it apart, and there an argument can become a command"
            )
        self._argv = [os.fspath(each) for each in argv]
        if not self._argv:
            raise ValueError("argv is empty: give the program and its arguments")
        self._input = input.encode() if isinstance(input, str) else input
        self._cwd = cwd
        self._env = None if env is None else dict(env)
        self._taps = (_Tap(max_output), _Tap(max_output))
        self._lock_path = lock_path
        self._stop = threading.Event()
        self._living = threading.Lock()
        """Held while the child is signalled or reaped: a reaped pid may be somebody else's."""
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, timeout: float | None) -> Completed:
        """Start the command and wait for its end, `timeout` seconds at most.

        Raises:
            TimeoutError: the time was up; the whole process group was killed.
            Unsure: it was stopped from outside and killed likewise.
            OSError: it could not be started; nothing ran.
        """
        started = time.monotonic()
        deadline = None if timeout is None else started + timeout
        if timeout is not None and timeout <= 0:
            raise TimeoutError(f"no time was left to start {self._argv[0]}")
        with _locked(self._lock_path) as inherited:
            child = self._start(inherited)
            try:
                end = self._serve(child, deadline)
            finally:
                self._reap(child)
        match end:
            case _End.DEADLINE:
                raise TimeoutError(
                    f"{self._argv[0]} took longer than {timeout:.3g} s and was killed"
                )
            case _End.STOPPED:
                raise Unsure(f"{self._argv[0]} was killed, because the call's time was over")
        out, err = self._taps
        return Completed(
            returncode=child.returncode,
            stdout=out.text(),
            stderr=err.text(),
            truncated=bool(out.left_out or err.left_out),
            duration_s=time.monotonic() - started,
        )

    def stop(self) -> None:
        """Have it killed soon, or never started. Returns at once."""
        self._stop.set()

    def kill(self) -> None:
        """Kill the whole group now."""
        with self._living:
            if self._child is not None:
                _signal_group(self._child.pid, signal.SIGKILL)

    def _start(self, inherited: tuple[int, ...]) -> subprocess.Popen[bytes]:
        if self._stop.is_set():
            raise Unsure(f"{self._argv[0]} was not started: the call is over")
        child = subprocess.Popen(
            self._argv,
            stdin=subprocess.DEVNULL if self._input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._cwd,
            env=self._env,
            bufsize=0,
            start_new_session=True,
            pass_fds=inherited,
        )
        self._child = child
        _running.add(self)
        return child

    def _serve(self, child: subprocess.Popen[bytes], deadline: float | None) -> _End:
        with _Pump(child, self._taps, self._input) as pump:
            end = pump.until(deadline, self._stop)
            if end is not _End.DONE:
                _signal_group(child.pid, signal.SIGTERM)
                pump.until(time.monotonic() + TERM_GRACE_S, None)
            return end

    def _reap(self, child: subprocess.Popen[bytes]) -> None:
        """Kill what is left of the group while the pid is still ours, then collect the child."""
        with self._living:
            _signal_group(child.pid, signal.SIGKILL)
            # A child that survives SIGKILL sits in the kernel; Python collects it later.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(REAP_S)
            self._child = None
        _running.discard(self)


class _Pump:
    """Moves bytes between the pipes of a child and memory until it is over."""

    def __init__(
        self, child: subprocess.Popen[bytes], taps: tuple[_Tap, _Tap], input: bytes | None
    ) -> None:
        self._child = child
        self._left = memoryview(input or b"")
        self._selector = selectors.DefaultSelector()
        for stream, tap in zip((child.stdout, child.stderr), taps, strict=True):
            self._register(stream, selectors.EVENT_READ, tap)
        self._register(child.stdin, selectors.EVENT_WRITE, None)

    def _register(self, stream: IO[bytes] | None, event: int, tap: _Tap | None) -> None:
        if stream is not None:
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, event, tap)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._selector.close()
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def until(self, deadline: float | None, stop: threading.Event | None) -> _End:
        """Go on until the child has ended and its output is read, or no longer wanted."""
        patience, look_at, ended_at = 0.0005, 0.0, 0.0
        while True:
            now = time.monotonic()
            if not ended_at and (now >= look_at or not self._selector.get_map()):
                look_at = now + TICK_S
                ended_at = now if _has_ended(self._child) else 0.0
            if ended_at and (not self._selector.get_map() or now >= ended_at + LINGER_S):
                return _End.DONE
            if stop is not None and stop.is_set():
                return _End.STOPPED
            if deadline is not None and now >= deadline:
                return _End.DEADLINE
            wait = patience if deadline is None else min(patience, deadline - now)
            patience = 0.0005 if self._move(wait) else min(patience * 2, TICK_S)

    def _move(self, wait: float) -> bool:
        ready = self._selector.select(wait)
        for key, _ in ready:
            stream: IO[bytes] = key.fileobj  # type: ignore[assignment] # - only pipes are registered
            if key.data is None:
                self._write(stream)
            else:
                self._read(stream, key.data)
        return bool(ready)

    def _read(self, stream: IO[bytes], tap: _Tap) -> None:
        chunk = stream.read(CHUNK)
        if chunk:
            tap.feed(chunk)
        elif chunk is not None:  # None only means: nothing there just now
            self._selector.unregister(stream)

    def _write(self, stream: IO[bytes]) -> None:
        try:
            self._left = self._left[os.write(stream.fileno(), self._left[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not want the rest, which is its good right
            self._left = self._left[:0]
        if not self._left:
            self._selector.unregister(stream)
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended, without collecting it: its pid stays ours until `_reap`."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return child.poll() is not None
    try:
        state = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True  # somebody else in this process has collected it
    return state is not None


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[tuple[int, ...]]:
    """The descriptor a child inherits, with a shared lock on it; nothing without a path.

    Shared, so that several processes of a call can hold it; whoever asks whether they are gone
    tries for the exclusive one.
    """
    if not path:
        yield ()
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _share(handle, path)
        yield (handle,)
    finally:
        os.close(handle)


def _share(handle: int, path: str) -> None:
    for _ in range(LOCK_TRIES):  # who asks whether it is free holds it for a moment
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return
    raise OSError(f"the lock file {path} of this call is held by somebody else")


_running: weakref.WeakSet[Process] = weakref.WeakSet()


@atexit.register
def _leave_nothing_running() -> None:
    for each in list(_running):
        each.kill()
