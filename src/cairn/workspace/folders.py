"""Which workspace a run has: one of its own, its session's, or the one that was given for all."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol, get_args

from cairn.errors import ConfigError, safe_repr
from cairn.workspace.belonging import ASIDE, Owner, clear_aside, only_one
from cairn.workspace.descent import FOLDER, failed
from cairn.workspace.limits import WorkspaceLimits, checked_limits
from cairn.workspace.paths import shown
from cairn.workspace.place import STATE
from cairn.workspace.workspace import Workspace

Per = Literal["run", "session"]
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
PLAIN_LENGTH = 64


class GivesWorkspaces(Protocol):
    """Knows the workspace of each run."""

    def of(self, run: str, session: str = "", owner: Owner | None = None) -> Workspace:
        """The workspace of a run, untouched so far."""
        ...

    def shares(self, session: str) -> bool:
        """Whether the runs of this session work in one folder."""
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
        given: object = base
        if not isinstance(given, str | os.PathLike):
            raise ConfigError("workspace", f"{safe_repr(given)} is no folder", "Give a folder")
        self.base = Path(os.path.abspath(base))  # noqa: PTH100 - resolve() would follow links
        if self.base.exists() and not self.base.is_dir():
            raise ConfigError("workspace", f"{str(self.base)!r} is no folder", "Give a folder")
        self._per = per
        self._limits = limits
        self._lock = threading.Lock()
        self._used: weakref.WeakValueDictionary[tuple[str, Owner | None], Workspace]
        self._used = weakref.WeakValueDictionary()
        checked_limits(limits)

    def of(self, run: str, session: str = "", owner: Owner | None = None) -> Workspace:
        """The workspace of a run; one object for all who use it at the same time.

        Args:
            run, session: Their ids.
            owner: Whose it is. The folder of another one who had the name before is set aside when
                it is first used, and a fresh one begun. By default the folder is taken as it is;
                one that is made so belongs to whoever uses it first.
        """
        name = self._of(run, session)
        with self._lock:
            found = self._used.get((name, owner))
            if found is None and owner is None:
                used = [each for (of, _), each in self._used.items() if of == name]
                found = used[-1] if used else None
            if found is None:
                found = Workspace(self.base / name, limits=self._limits, _own=True, _owner=owner)
                self._used[name, owner] = found
            return found

    def shares(self, session: str) -> bool:
        """Whether the runs of this session work in one folder."""
        return self._per == "session" and bool(session)

    def remove(self, run: str, session: str = "") -> bool:
        """Remove the workspace of a run that is over, with what is noted beside it.

        That of a session goes whole. Nothing may work in it meanwhile. Returns whether there was
        one.

        Raises:
            WorkspaceFailed: it cannot be removed.
        """
        return self._remove(self._of(run, session))

    def remove_gone(self, runs: Iterable[str], sessions: Iterable[str]) -> list[str]:
        """Remove the workspaces of runs and sessions that are in the store no more.

        Call it within `held`, or somebody may have taken the name anew and be using it.
        Returns the names of the folders that went.

        Raises:
            WorkspaceFailed: one cannot be removed; some may be gone.
        """
        places = [*map(of_run, runs), *map(of_session, sessions)]
        return [place for place in places if self._remove(place)]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock: meanwhile no process opens a workspace for the first time."""
        try:
            state = os.open(self.base / STATE, FOLDER)
        except OSError:  # nothing was ever used here
            yield
            return
        try:
            with only_one(state):
                yield
        finally:
            os.close(state)

    def clear_aside(self, before: int) -> list[str]:
        """Remove what was set aside before that time, microseconds since 1970: it is nobody's.

        Returns the names of the folders that went.

        Raises:
            WorkspaceFailed: one cannot be removed; some may be gone.
        """
        try:
            state = os.open(self.base / STATE, FOLDER)
        except OSError:  # nothing was ever used here
            return []
        try:
            return [f"{STATE}/{ASIDE}/{name}" for name in clear_aside(state, before)]
        except OSError as error:
            told = shown(str(self.base / STATE / ASIDE))
            raise failed(told, "cannot be cleared", error) from error
        finally:
            os.close(state)

    def _remove(self, place: str) -> bool:
        """Remove a folder and what is noted of it; the mark that says whose it is goes last."""
        found = self.base / place
        notes = self.base / STATE
        with self._lock:
            for key in [key for key in self._used if key[0] == place]:
                self._used.pop(key, None)
        there = found.is_symlink() or found.exists()
        try:
            for path in (found, notes / f"{place}.calls", notes / f"{place}.json"):
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
        ConfigError: it is none of these, or `Workspaces` that say another `per`.
    """
    if per not in get_args(Per):
        raise ConfigError("workspace_per", f"{safe_repr(per)} is unknown", "Use run or session")
    if isinstance(given, Workspaces) and per == "session" and not given.shares("any"):
        problem = "it is 'session', and the Workspaces that are given are per run"
        fix = 'Write Workspaces(folder, per="session"), or give the folder alone'
        raise ConfigError("workspace_per", problem, fix)
    if given is None or isinstance(given, Workspace | Workspaces):
        return given
    if isinstance(given, str | os.PathLike) and os.fspath(given):
        return Workspaces(given, per=per)
    fix = "Give the path of a folder, a Workspace or Workspaces"
    raise ConfigError("workspace", f"{safe_repr(given)} is no workspace", fix)
