"""Which workspace a run has: one of its own, its session's, or the one that was given for all."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import weakref
from pathlib import Path
from typing import Literal, Protocol, get_args

from cairn.errors import ConfigError, safe_repr
from cairn.workspace.descent import failed
from cairn.workspace.limits import WorkspaceLimits, checked_limits
from cairn.workspace.paths import shown
from cairn.workspace.place import STATE
from cairn.workspace.workspace import Workspace

Per = Literal["run", "session"]
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
PLAIN_LENGTH = 64


class GivesWorkspaces(Protocol):
    """Knows the workspace of each run."""

    def of(self, run: str, session: str = "") -> Workspace:
        """The workspace of a run, untouched so far."""
        ...


class Workspaces:
    """A folder with a workspace for each run, or for each session.

    Args:
        base: The folder that holds them; made, for its owner only, when the first is used.
        per: `run` (default) or `session`; a run without a session has its own in any case.
        limits: How much each may hold.

    Raises:
        ConfigError: a value is not usable.
    """

    def __init__(
        self,
        base: str | os.PathLike[str],
        *,
        per: Per = "run",
        limits: WorkspaceLimits | None = None,
    ) -> None:
        if per not in get_args(Per):
            raise ConfigError("workspace_per", f"{safe_repr(per)} is unknown", "Use run or session")
        self.base = Path(os.path.abspath(base))  # noqa: PTH100 - resolve() would follow links
        if self.base.exists() and not self.base.is_dir():
            raise ConfigError("workspace", f"{str(self.base)!r} is no folder", "Give a folder")
        self._per = per
        self._limits = limits
        self._lock = threading.Lock()
        self._used: weakref.WeakValueDictionary[str, Workspace] = weakref.WeakValueDictionary()
        checked_limits(limits)

    def of(self, run: str, session: str = "") -> Workspace:
        """The workspace of a run; one object for all who use it at the same time."""
        name = self._of(run, session)
        with self._lock:
            found = self._used.get(name)
            if found is None:
                found = Workspace(self.base / name, limits=self._limits, _own=True)
                self._used[name] = found
            return found

    def remove(self, run: str, session: str = "") -> bool:
        """Remove the workspace of a run that is over, with what is noted beside it.

        That of a session goes whole. Nothing may work in it meanwhile. Returns whether there was
        one.

        Raises:
            WorkspaceFailed: it cannot be removed.
        """
        with self._lock:
            place = self._of(run, session)
            found = self.base / place
            notes = self.base / STATE
            self._used.pop(place, None)
        there = found.is_symlink() or found.exists()
        try:
            for path in (found, notes / f"{place}.json", notes / f"{place}.calls"):
                _remove(path)
        except OSError as error:
            raise failed(shown(str(found)), "cannot be removed", error) from error
        return there

    def _of(self, run: str, session: str) -> str:
        return of_session(session) if self._per == "session" and session else of_run(run)


def _remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all in it; no link is followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def of_run(run: str) -> str:
    """The folder of a run: its id, unless that would be hidden or read as a session's."""
    return f"={run}" if run.startswith((".", "s-")) else run


def of_session(session: str) -> str:
    """The folder of a session: its id behind `s-`, or a hash if that is no plain name."""
    if 0 < len(session) <= PLAIN_LENGTH and PLAIN.issuperset(session):
        return f"s-{session}"
    return f"s={hashlib.sha256(session.encode()).hexdigest()[:40]}"


def workspaces(given: object, per: Per = "run") -> GivesWorkspaces | None:
    """What a deployment gave as its workspace: a folder, a `Workspace`, `Workspaces`, or None.

    Raises:
        ConfigError: it is none of these.
    """
    if per not in get_args(Per):
        raise ConfigError("workspace_per", f"{safe_repr(per)} is unknown", "Use run or session")
    if given is None or isinstance(given, Workspace | Workspaces):
        return given
    if isinstance(given, str | os.PathLike) and os.fspath(given):
        return Workspaces(given, per=per)
    fix = "Give the path of a folder, a Workspace or Workspaces"
    raise ConfigError("workspace", f"{safe_repr(given)} is no workspace", fix)
