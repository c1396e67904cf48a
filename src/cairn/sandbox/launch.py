"""One sandboxed command as a plain process: what to start, what to write to it, how to read it."""

from __future__ import annotations

import contextlib
import marshal
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cairn.core.messages import Record
from cairn.errors import ErrorClass, NotDone, ToolError, Unsure
from cairn.sandbox import bubblewrap
from cairn.sandbox.interpreter import PACKAGE, command, for_user, own, passable
from cairn.sandbox.limits import Limits

Rung = Literal["bubblewrap", "bubblewrap-root", "landlock", "unsandboxed"]
Why = Literal["itself", "time", "memory", "processes", "disk", "stopped"]

NOBODY = 65_534
"""Who a command becomes when the runtime is root and the workspace is root's."""
PATH = "/usr/local/bin:/usr/bin:/bin"
READABLE: tuple[str, ...] = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
READABLE += ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
READABLE += ("/proc/cpuinfo", "/proc/meminfo", "/proc/loadavg", "/proc/version")


class Ended(Record):
    """How a sandboxed command ended.

    Args:
        why: By itself, or the limit that ended it.
        exit_code: Its status, minus the signal's number; None when a limit ended it.
        stderr: What it wrote there, without the supervisor's lines.
    """

    why: Why
    exit_code: int | None
    stderr: str


class Launch(Record):
    """A process to start.

    Args:
        rung: The walls it is behind.
        argv, env, cwd: What to start, its whole environment, its folder.
        input: What to write to it.
        interpreter: A Python the command can use there; empty when none is within its reach.
        mark: What the supervisor's own lines begin with; secret. Empty when there is none.
    """

    rung: Rung
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    input: bytes
    mark: str

    def read(self, returncode: int, stderr: str) -> Ended:
        """What became of it, from how the process ended.

        Raises:
            NotDone: it could not be started; nothing ran.
            Unsure: the supervisor was killed before it could tell.
        """
        if not self.mark:
            return Ended(why="itself", exit_code=returncode, stderr=stderr)
        line = re.compile(rf"\n\x00{self.mark} (\w+) ?([^\n]*)\n")
        said = dict(line.findall(stderr))
        rest = line.sub("", stderr)
        if "failed" in said:
            raise NotDone(f"the sandbox ({self.rung}) could not start it: {said['failed']}")
        if "ended" in said:
            why, _, code = said["ended"].partition(" ")
            known = msgspec.convert(why, Why)
            return Ended(why=known, exit_code=int(code) if known == "itself" else None, stderr=rest)
        if "started" in said:
            raise Unsure(f"the sandbox ({self.rung}) was killed while the command ran")
        detail = rest.strip()[:300] or f"status {returncode}"
        raise NotDone(f"the sandbox ({self.rung}) could not be set up: {detail}")


def prepare(
    rung: Rung,
    argv: Sequence[str],
    *,
    bwrap: str = "",
    workspace: str = "",
    limits: Limits,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    readable: Sequence[str] = (),
) -> Launch:
    """Put a command behind the walls of one rung.

    Args:
        rung: Which; it must be one that this machine reaches.
        argv: The command, as it is seen behind the walls.
        bwrap: Where bubblewrap is, for the rungs that use it.
        workspace: Its working folder; empty for an empty one that ends with it.
        limits: What it may take.
        env: Variables beside the few that are set anyway; nothing is inherited.
        stdin: What it can read; nothing by default.
        readable: Further folders it may read.

    Raises:
        ToolError: the user that root's command becomes cannot reach the workspace.
    """
    if rung == "unsandboxed":
        return _without_walls(argv, workspace, env or {}, stdin)
    mark = secrets.token_hex(12)
    spaces = rung != "landlock"
    seen = bubblewrap.WORKSPACE if spaces else workspace
    variables = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": "/tmp"}  # noqa: S108 - an empty one of its own
    if seen:
        variables["HOME"] = variables["PWD"] = seen
    uid = _user(rung, workspace)
    python = own()
    request = {
        "mark": mark,
        "namespaces": spaces,
        "argv": list(argv),
        "env": variables | dict(env or {}),
        "cwd": seen,
        "stdin": stdin is not None,
        "uid": uid,
        "tmp": tempfile.gettempdir(),
        "disk": [seen] if workspace else [],
        "writable": [workspace] if workspace else [],
        "readable": [*READABLE, *python.folders, *readable],
        "limits": {**msgspec.structs.asdict(limits), "running": _running(rung, uid)},
    }
    if spaces:
        outer = bubblewrap.command_line(
            bwrap,
            user_namespace=rung == "bubblewrap",
            workspace=workspace,
            tmp_bytes=limits.tmp_bytes,
            readable=tuple(readable),
        )
    else:
        outer = command(python.path, str(PACKAGE))
    text = marshal.dumps(request).hex().encode() + b"\n" + (stdin or b"")
    return Launch(rung=rung, argv=tuple(outer), env={}, cwd="/", input=text, mark=mark)


def _without_walls(
    argv: Sequence[str], workspace: str, env: Mapping[str, str], stdin: bytes | None
) -> Launch:
    return Launch(
        rung="unsandboxed",
        argv=tuple(argv),
        env={"PATH": os.environ.get("PATH", PATH), "LANG": "C.UTF-8", **env},
        cwd=workspace or tempfile.gettempdir(),
        input=stdin or b"",
        mark="",
    )


def python_there(rung: Rung, workspace: str = "") -> str:
    """The interpreter that Python code runs on behind these walls; empty when none can be used."""
    if rung != "landlock" or os.getuid() != 0:
        return own().path
    found = for_user(Path(workspace).stat().st_uid or NOBODY if workspace else NOBODY)
    return found.path if found else ""


def _user(rung: Rung, workspace: str) -> int:
    """Whom root's command becomes: the workspace's owner or nobody, who is given what is root's.

    0 where it keeps its user: it is not root, or it becomes root's powerless alias.
    """
    if os.getuid() != 0 or rung == "bubblewrap":
        return 0
    if not workspace:
        return NOBODY
    if rung == "landlock" and not passable(workspace):
        raise ToolError(
            f"the sandbox (landlock) runs commands of root as another user, who cannot reach "
            f"{workspace}: a folder above it is closed to others. An operator may open it "
            "(chmod o+x), choose another place, or install bubblewrap",
            error_class=ErrorClass.TOOL_UNAVAILABLE,
        )
    user = Path(workspace).stat().st_uid or NOBODY
    hand_over(workspace, user)  # each time: the runtime's own tools write there as root
    return user


def hand_over(workspace: str, uid: int) -> None:
    """Give root's files below a folder to another user; links themselves, never what they name.

    A file with several names stays root's: one of them may lie outside.
    """
    if Path(workspace).stat().st_uid == 0:
        os.chown(workspace, uid, uid, follow_symlinks=False)
    for _, folders, files, at in os.fwalk(workspace, follow_symlinks=False):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                about = os.stat(name, dir_fd=at, follow_symlinks=False)
                if about.st_uid == 0 and (stat.S_ISDIR(about.st_mode) or about.st_nlink == 1):
                    os.chown(name, uid, uid, dir_fd=at, follow_symlinks=False)


def _running(rung: Rung, uid: int) -> int:
    """Threads of the user it runs as: the kernel's bound counts them all, on the whole machine."""
    if rung == "bubblewrap":
        return 0
    user, total = uid or os.getuid(), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == user:
                    total += len(list(os.scandir(f"/proc/{entry.name}/task")))
    return total
