"""The supervisor: starts one command behind the walls, watches it, and leaves nothing running.

With namespaces it is the first process of its own, so its end is the end of all. Without, it is
the nearest reaper of every descendant: it stops them all, then kills them all. It is told what to
do in the first line of standard input, and reports in marked lines on standard error; the mark is
secret, so that the command cannot speak for it. It imports little: this is paid at every call.
"""

# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH113, PTH123, PTH208 - pathlib would cost more than all else at each start

from __future__ import annotations

import ctypes
import fcntl
import marshal
import os
import resource
import select
import signal
import struct
import time

from cairn.sandbox.inside import landlock, seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

TICK_S = 0.02
DISK_TICK_S = 0.5
SHARE = 10
"""Watching takes at most one part in this many of the time."""
DEVICES = ("null", "zero", "full", "random", "urandom")

_SET_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP = 1, 4, 24
_SET_NO_NEW_PRIVS, _SET_SUBREAPER, _CAP_AMBIENT = 38, 36, 47
_FRESH_FORKS = 4
"""How far the kernel's bound of processes lies above ours: calls of one user share it."""
_NEWS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class _Quiet:
    """Goes on in spite of these errors; `contextlib` would cost as much as all else here."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)


_GONE = _Quiet(ProcessLookupError, PermissionError)
_ANY = _Quiet(OSError, ValueError)


def main() -> NoReturn:
    """Serve the one request on standard input and leave."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # neither traced nor read by what it starts
    spec = marshal.loads(bytes.fromhex(_first_line()))  # noqa: S302 - written by our own parent
    try:
        report = Jail(libc, spec).serve()
    except (OSError, KeyError, ValueError) as error:
        report = f"failed {type(error).__name__}: {error}"
    say(spec["mark"], report)
    os._exit(0)


def _first_line() -> str:
    """Read byte by byte: what follows the line belongs to the command."""
    line = bytearray()
    while byte := os.read(0, 1):
        if byte == b"\n":
            break
        line += byte
    return line.decode()


def say(mark: str, report: str) -> None:
    """Write one marked line, whatever stands before it."""
    with _ANY:  # nobody may be reading any more
        os.write(2, f"\n\0{mark} {report}\n".encode())


class Jail:
    """One command, from its start to the end of the last thing it started."""

    def __init__(self, libc: ctypes.CDLL, spec: dict[str, Any]) -> None:
        self._libc = libc
        self._spec = spec
        self._namespaces = bool(spec["namespaces"])
        self._limits = spec["limits"]
        self._inherited = _regular_files()
        self._places = list(spec["disk"])
        self._scratch = ""
        self._main = 0
        self._status: int | None = None
        self._me = os.getpid()
        self._readers = select.poll()
        """Reports only that somebody has closed the other end: whoever wanted to know is gone."""

    def serve(self) -> str:
        if self._namespaces and self._me != 1:
            raise OSError("this is no process namespace of its own")
        if not self._namespaces:
            self._libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
            self._scratch = _scratch(self._spec["tmp"])
            if self._spec["uid"]:
                os.chown(self._scratch, self._spec["uid"], self._spec["uid"])
            self._places.append(self._scratch)
        try:
            return self._serve()
        finally:
            self._end_all()
            if self._scratch:
                _remove(self._scratch)

    def _serve(self) -> str:
        if self._namespaces:
            self._drop()  # as that user it sees the workspace; the first process needs no rights
        # Said again, for a change of user takes it back.
        self._libc.prctl(
            _SET_PDEATHSIG, signal.SIGKILL if self._namespaces else signal.SIGTERM, 0, 0, 0
        )
        self._readers.register(1, 0)
        self._readers.register(2, 0)
        before = _blocks(self._places)
        signal.pthread_sigmask(signal.SIG_BLOCK, _NEWS)
        say(self._spec["mark"], "started")
        seen, told = os.pipe2(os.O_CLOEXEC)
        self._main = os.fork()
        if self._main == 0:
            self._become(told)
        os.close(told)
        with open(seen, "rb") as pipe:
            # Ends when the command is executed, or says why it could not be.
            if problem := pipe.read():
                return "failed " + problem.decode(errors="replace")
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
        why = self._watch(before)
        self._end_all()
        code = 0 if self._status is None else os.waitstatus_to_exitcode(self._status)
        return f"ended {why or 'itself'} {code}"

    # ------------------------------------------------------------ watching

    def _watch(self, before: int) -> str:
        """Wait for the command's end, or for a limit; says which limit."""
        end = time.monotonic() + self._limits["wall_s"]
        look_at, disk_at = 0.0, time.monotonic() + DISK_TICK_S
        while True:
            now = time.monotonic()
            wait = max(0.0, min(look_at, disk_at, end) - now)
            news = signal.sigtimedwait(_NEWS, wait)
            if news is not None and news.si_signo != signal.SIGCHLD:
                return "stopped"
            self._reap()
            if self._status is not None:
                return ""
            if self._readers.poll(0):
                return "stopped"
            now = time.monotonic()
            if now >= end:
                return "time"
            if now >= look_at:
                if why := self._too_many():
                    return why
                look_at = _next(now, TICK_S)
            if now >= disk_at:
                if _blocks(self._places) - before > self._limits["disk_bytes"]:
                    return "disk"
                disk_at = _next(now, DISK_TICK_S)

    def _too_many(self) -> str:
        processes = memory = 0
        others = self._others()
        if len(others) > self._limits["processes"]:
            return "processes"  # at once: a bomb grows faster than it can be looked at
        for pid in others:
            threads, size = _use(pid)
            processes += threads
            memory += size
        if processes > self._limits["processes"]:
            return "processes"
        return "memory" if memory > self._limits["memory_bytes"] else ""

    def _others(self) -> set[int]:
        everybody = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        everybody.discard(self._me)
        return everybody if self._namespaces else _descendants(self._me, everybody)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._main:
                self._status = status

    def _end_all(self) -> None:
        """Stop all descendants, so that none starts another, then kill them.

        Each by its number, never all there are by -1: should the walls not stand, that would be
        every process of the machine. With a process namespace there is nothing to do: this is
        its first process, and the kernel ends the others with it, all at once.
        """
        if self._namespaces:
            return
        stopped: set[int] = set()
        while fresh := self._others() - stopped:
            for pid in fresh:
                with _GONE:
                    os.kill(pid, signal.SIGSTOP)
            stopped |= fresh
        for pid in stopped:
            with _GONE:
                os.kill(pid, signal.SIGKILL)
        give_up = time.monotonic() + 2.0
        while time.monotonic() < give_up:
            self._reap()
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return
            time.sleep(0.001)

    # ------------------------------------------------------------ the command's side

    def _become(self, told: int) -> NoReturn:
        try:
            self._confine(told)
            spec = self._spec
            env = dict(spec["env"])
            if self._scratch:
                env["TMPDIR"] = self._scratch
                env.setdefault("HOME", self._scratch)
            os.execvpe(spec["argv"][0], spec["argv"], env)  # noqa: S606 - that is the task
        except BaseException as error:  # whatever it is, the supervisor is told and nothing runs
            with _ANY:
                os.write(told, f"{self._spec['argv'][0]}: {type(error).__name__}: {error}".encode())
        os._exit(125)

    def _confine(self, told: int) -> None:
        os.setsid()
        for number in range(1, signal.NSIG):
            if number not in {signal.SIGKILL, signal.SIGSTOP}:
                with _ANY:
                    signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)  # or the next file would be root's
        with _ANY:
            os.nice(10)
        with _ANY, open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
        self._files(told)
        limit_resources(self._limits)
        os.chdir(self._spec["cwd"] or self._scratch)
        if not self._namespaces:
            self._drop()
        self._libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._me:
            raise OSError("the supervisor is gone")
        if self._libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs was refused")
        version = 0
        if not self._namespaces:
            version = landlock.restrict(
                self._libc,
                readable=self._spec["readable"],
                writable=[*self._spec["writable"], self._scratch],
                devices=[f"/dev/{name}" for name in DEVICES],
            )
        code = seccomp.program(
            os.uname().machine,
            namespaces=self._namespaces,
            scoped=version >= 6,
            truncates=version >= 3,
        )
        seccomp.install(self._libc, code)

    def _files(self, told: int) -> None:
        """Standard input is the rest of it, or nothing; of the others only the lock's twin stays.

        The twin is for the case without namespaces, where a descendant may outlive a killed
        supervisor. It is a description of its own: unlocking it unlocks nothing else.
        """
        keep = {0, 1, 2, told}
        if not self._spec["stdin"]:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
        if not self._namespaces:
            for held in self._inherited:
                twin = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_CLOEXEC)
                with _ANY:
                    fcntl.flock(twin, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.set_inheritable(twin, True)
                keep.add(twin)
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in keep:
                with _ANY:
                    os.close(int(name))

    def _drop(self) -> None:
        uid = self._spec["uid"]
        if not uid:
            return
        for capability in range(64):
            self._libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
        self._libc.prctl(_CAP_AMBIENT, 4, 0, 0, 0)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        header, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
        if self._libc.capset(header, none) != 0:
            raise OSError(ctypes.get_errno(), "capabilities could not be dropped")


def limit_resources(limits: dict[str, Any]) -> None:
    """Bound what this process and each it starts may take; lower bounds of the host stay."""
    wanted = {
        resource.RLIMIT_CPU: limits["cpu_s"],
        resource.RLIMIT_DATA: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 65_536,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NPROC: limits["running"] + _FRESH_FORKS * limits["processes"],
    }
    for which, value in wanted.items():
        hard = resource.getrlimit(which)[1]
        top = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # The hard bound for CPU lies higher, so that the first news of it is SIGXCPU.
        limit = (top, top + 5) if which == resource.RLIMIT_CPU else (top, top)
        with _ANY:
            resource.setrlimit(which, limit)


def _scratch(parent: str) -> str:
    path = f"{parent}/cairn-{os.urandom(8).hex()}"
    os.mkdir(path, 0o700)
    return path


def _remove(folder: str) -> None:
    """Remove a folder and what is in it; links are removed, not followed."""
    with _ANY:
        os.chmod(folder, 0o700)
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                with _ANY:
                    os.unlink(entry.path)
        os.rmdir(folder)


def _use(pid: int) -> tuple[int, int]:
    """Threads and memory of a process: what it has for itself, and what it shares with its kin."""
    threads = size = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith((b"RssAnon:", b"RssShmem:")):
                    size += int(line.split()[1]) * 1024
                elif line.startswith(b"Threads:"):
                    threads = int(line.split()[1])
    except OSError:
        return 0, 0
    return threads, size


def _descendants(root: int, everybody: set[int]) -> set[int]:
    parents = {}
    for pid in everybody:
        with _ANY, open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
            if fields and fields[0] != b"Z":
                parents[pid] = int(fields[1])
    found: set[int] = set()
    layer = {root}
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer and pid not in found}
        found |= layer
    return found


def _regular_files() -> list[int]:
    """Descriptors of plain files that were handed down: the lock of the call."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with _ANY:
            if int(name) > 2 and os.path.isfile(f"/proc/self/fd/{name}"):
                found.append(int(name))
    return found


def _blocks(places: list[str]) -> int:
    """Bytes on disk below these folders, links not followed."""
    total, waiting = 0, list(places)
    while waiting:
        with _ANY, os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with _ANY:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total


def _next(began: float, tick: float) -> float:
    now = time.monotonic()
    return now + max(tick, SHARE * (now - began))
