"""Who drives runs: each process holds a file lock for life, and leases name its token.

A lock that can be taken proves that the process is gone (`dead`). A process that lives but has
not renewed its line for too long is frozen: it may wake up and write, so it only `expired`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import apsw

from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.filesystem import PRIVATE_FILE, PRIVATE_FOLDER

Fate = Literal["alive", "dead", "expired"]

RESTORED = "restored"
"""The token that leases of a restored backup name: whoever held them may well be alive."""

POLL_US = 1_000_000
"""How long what was found out about a process may be believed."""

ASKED_TIMES = 4
ASKED_PAUSE_S = 0.002
"""How long it takes, at most, to tell a process of a call from somebody who only asks."""

LONG_AGO = -(10**15)

_left_behind: dict[str, int] = {}
"""Token → lock of owners of this process that ended while runs were still theirs.

Their tools may still be at work in other threads, so the lock is kept until the process ends,
and the runs count as expired, not as dead.
"""


def monotonic_us() -> int:
    """The machine's monotonic clock, the same for all processes since the machine started."""
    return time.monotonic_ns() // 1000


def boot_id() -> str:
    """What tells this start of the machine from every other."""
    if sys.platform == "darwin":
        import ctypes

        size = ctypes.c_size_t(64)
        buffer = ctypes.create_string_buffer(size.value)
        ctypes.CDLL(None).sysctlbyname(
            b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, ctypes.c_size_t(0)
        )
        return buffer.value.decode()
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def forget_left_behind() -> None:
    """In a forked child: the parent's locks are not its own."""
    for descriptor in _left_behind.values():
        os.close(descriptor)
    _left_behind.clear()


def is_held(path: str) -> bool:
    """Whether an owner holds the lock on its file, which it does alone."""
    # asked for shared, so that two who ask at once do not take each other for the owner
    return _refused(path, fcntl.LOCK_SH)


def is_shared(path: str) -> bool:
    """Whether any process of a call holds the lock on the call's file, which they do together."""
    # only alone would be refused beside them; who else asks at the moment lets go at once
    for _ in range(ASKED_TIMES):
        if not _refused(path, fcntl.LOCK_EX):
            return False
        time.sleep(ASKED_PAUSE_S)
    return True


def _refused(path: str, kind: int) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lines(connection: apsw.Connection) -> list[Any]:
    """token, boot, beat of every owner."""
    return connection.execute("SELECT token, boot, beat FROM owner").fetchall()


class Owners:
    """This process as an owner, and what it knows about the others."""

    def __init__(self, settings: Settings) -> None:
        self.token = secrets.token_hex(8)
        self.folder = f"{settings.path}.owners"
        self._boot = boot_id()
        self._beat_us = int(settings.beat_s * 1e6)
        self._expiry_us = int(settings.expiry_s * 1e6)
        self._lock: int | None = None
        self._beaten = -self._beat_us
        self._known: dict[str, tuple[int, Fate]] = {}
        self._guard = threading.Lock()

    # ------------------------------------------------------------ this process

    def enlist(self, connection: apsw.Connection) -> None:
        """Hold the lock and have a fresh line, inside the transaction of a claim."""
        if self._lock is None:
            self._take_lock()
            self._bury(connection)
        self.beat(connection)

    def beat(self, connection: apsw.Connection) -> None:
        """Renew the line, if it is time."""
        now = monotonic_us()
        if now - self._beaten < self._beat_us:
            return
        connection.execute(
            "INSERT INTO owner (token, pid, boot, beat) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (token) DO UPDATE SET beat = excluded.beat",
            (self.token, os.getpid(), self._boot, now),
        )
        self._beaten = now

    def next_beat_s(self) -> float:
        """How long until the line wants to be renewed."""
        return max(0.0, (self._beaten + self._beat_us - monotonic_us()) / 1e6)

    def undone(self) -> None:
        """The transaction was rolled back: the line may not be there."""
        self._beaten = -self._beat_us

    def sign_off(self, connection: apsw.Connection, *, driving: bool) -> None:
        """Leave in order, or, while runs are still claimed, let them expire at once."""
        if self._lock is None:
            return
        if driving:
            connection.execute("UPDATE owner SET beat = ? WHERE token = ?", (LONG_AGO, self.token))
            return
        connection.execute("DELETE FROM owner WHERE token = ?", (self.token,))

    def give_back(self, *, driving: bool) -> None:
        """Let the lock go; keep it until the process ends while runs are still claimed."""
        descriptor, self._lock = self._lock, None
        if descriptor is None:
            return
        if driving:
            _left_behind[self.token] = descriptor
            return
        with contextlib.suppress(OSError):
            Path(self._lock_path(self.token)).unlink()
        os.close(descriptor)

    def forked(self) -> None:
        """In a forked child: a copy of the lock would outlive the owner, so it is closed."""
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def _take_lock(self) -> None:
        Path(self.folder).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        path = self._lock_path(self.token)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink == 0:  # swept away between the two calls
                raise BlockingIOError(f"{path} was taken")
        except OSError:
            os.close(descriptor)
            self.token = secrets.token_hex(8)
            raise
        self._lock = descriptor

    # ------------------------------------------------------------ the others

    def fate(self, connection: apsw.Connection, token: str) -> Fate:
        """What has become of an owner, found out now."""
        if token == self.token:
            return "alive"
        line = next((rest for name, *rest in _lines(connection) if name == token), None)
        fate = self._judge(token, line)
        with self._guard:
            self._known[token] = (monotonic_us(), fate)
        return fate

    def alive(self, connection: apsw.Connection) -> list[str]:
        """The tokens whose leases hold, each looked at once a second at most."""
        now = monotonic_us()
        lines = _lines(connection)
        found = []
        with self._guard:
            known = self._known
            self._known = {}
            for token, boot, beat in lines:
                looked_at, fate = known.get(token, (now - POLL_US, "dead"))
                if now - looked_at >= POLL_US:
                    looked_at, fate = now, self._judge(token, (boot, beat))
                self._known[token] = (looked_at, fate)
                if fate == "alive":
                    found.append(token)
        return found

    def _judge(self, token: str, line: Sequence[Any] | None) -> Fate:
        if token == self.token:
            return "alive"
        if token == RESTORED or token in _left_behind:
            return "expired"
        if line is None or line[0] != self._boot or not is_held(self._lock_path(token)):
            return "dead"
        return "alive" if monotonic_us() - line[1] < self._expiry_us else "expired"

    def _bury(self, connection: apsw.Connection) -> None:
        """Remove the lines and lock files of the dead."""
        lines = _lines(connection)
        dead = [token for token, boot, beat in lines if self._judge(token, (boot, beat)) == "dead"]
        connection.executemany("DELETE FROM owner WHERE token = ?", [(token,) for token in dead])
        known = {token for token, _, _ in lines} - set(dead)
        self._sweep(path for path in Path(self.folder).glob("*.lock") if path.stem not in known)

    def _sweep(self, files: Iterable[Path]) -> None:
        for path in files:
            if path.stem == self.token or path.stem in _left_behind:
                continue
            with contextlib.suppress(OSError):  # gone already, or held by somebody who lives
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    # under the lock, so that a process that is just starting notices
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(descriptor)

    def _lock_path(self, token: str) -> str:
        return f"{self.folder}/{token}.lock"

    # ------------------------------------------------------------ child processes of calls

    def call_lock(self, run: str, call: str) -> str:
        """The lock file of a call's child processes."""
        return f"{self.folder}/calls/{quote(run, safe='')}.{quote(call, safe='')}.lock"

    def make_folders(self) -> None:
        """Where the lock files go."""
        Path(self.folder).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        (Path(self.folder) / "calls").mkdir(mode=PRIVATE_FOLDER, exist_ok=True)

    def forget_calls(self, run: str) -> None:
        """Remove what is left of a pruned run's lock files."""
        for path in (Path(self.folder) / "calls").glob(f"{quote(run, safe='')}.c*.lock"):
            path.unlink(missing_ok=True)
