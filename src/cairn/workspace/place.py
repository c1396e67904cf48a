"""Where a workspace lies, and the handles by which it is held: the folder, and notes beside it."""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cairn.errors import ConfigError, safe_repr
from cairn.workspace.belonging import Owner, only_one, set_aside, standing
from cairn.workspace.descent import FOLDER, failed
from cairn.workspace.intents import open_notes
from cairn.workspace.paths import shown
from cairn.workspace.refusals import WorkspaceFailed

STATE = ".cairn"
"""The folder beside workspaces in which their baselines and notes are kept."""
OWN_MODE = 0o700


class Place:
    """The paths of one workspace.

    Attributes:
        root: The workspace's folder; the way to it may lead over links, it itself may be none.
        baseline: The file in which is kept what was there at first.
        own: Whether the folder must belong to this process's user: for those that are made for
            one run, in a place where others may write.
    """

    def __init__(self, root: object, baseline: object = None, *, own: bool) -> None:
        """Nothing is touched yet.

        Raises:
            ConfigError: no folder can be meant.
        """
        field = "Workspace.root"
        given = os.fspath(root) if isinstance(root, str | os.PathLike) else ""
        if not given:
            raise ConfigError(field, f"{safe_repr(root)} is no path", "Give the path of a folder")
        if "\0" in given:
            raise ConfigError(field, "the path holds NUL", "Give the path of a folder")
        self.root = Path(os.path.abspath(given))  # noqa: PTH100 - resolve() would follow links
        if self.root.name in {"", STATE}:
            said = f"{str(self.root)!r} cannot be a workspace"
            raise ConfigError(field, said, "Give a folder of its own")
        if baseline is None:
            self.baseline = self.root.parent / STATE / f"{self.root.name}.json"
        elif isinstance(baseline, str | os.PathLike):
            self.baseline = Path(os.path.abspath(baseline))  # noqa: PTH100 - as above
        else:
            said = f"{safe_repr(baseline)} is no path"
            raise ConfigError("Workspace.baseline", said, "Give the path of a file")
        if self.baseline.is_relative_to(self.root):
            said = "the baseline would lie inside the workspace, where agents could change it"
            raise ConfigError("Workspace.baseline", said, "Give a path outside")
        self.own = own

    def open(self) -> Held:
        """Make what is missing, for its owner only, and hold it.

        Raises:
            WorkspaceFailed: it is a link or a file, somebody else's, or cannot be made.
        """
        told = shown(str(self.root))
        opened: list[int] = []
        try:
            self.root.parent.mkdir(OWN_MODE, parents=True, exist_ok=True)
            opened.append(_folder(self.root.parent, self.root.name))
            self.baseline.parent.parent.mkdir(OWN_MODE, parents=True, exist_ok=True)
            opened.append(_folder(self.baseline.parent.parent, self.baseline.parent.name))
            opened.append(
                open_notes(opened[1], f"{self.baseline.name.removesuffix('.json')}.calls")
            )
            self._refuse_foreign(opened[0], told)
        except BaseException as error:  # whatever stopped it, no handles stay open
            for handle in opened:
                os.close(handle)
            if isinstance(error, OSError):
                raise failed(told, _why(self.root), error) from error
            raise
        return Held(*opened)

    @contextmanager
    def freed(self, owner: Owner | None) -> Iterator[None]:
        """Set the folder aside if it is somebody else's, and let nobody else open it meanwhile.

        Without an owner the one is meant who has the folder, whoever that is.

        Raises:
            WorkspaceFailed: it cannot be told whose it is, or it cannot be set aside.
        """
        if owner is None:
            yield
            return
        state = self._marks()
        try:
            with only_one(state):
                if standing(state, self.baseline.name, owner) == "foreign":
                    self._set_aside(state)
                yield
        finally:
            os.close(state)

    def _marks(self) -> int:
        try:
            self.baseline.parent.parent.mkdir(OWN_MODE, parents=True, exist_ok=True)
            return _folder(self.baseline.parent.parent, self.baseline.parent.name)
        except OSError as error:
            told = shown(str(self.baseline.parent))
            raise failed(told, "cannot be used for what is noted of workspaces", error) from error

    def _set_aside(self, state: int) -> None:
        try:
            base = os.open(self.root.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                set_aside(base, state, self.root.name)
            finally:
                os.close(base)
        except OSError as error:
            told = shown(str(self.root))
            raise failed(told, "is somebody else's, and cannot be set aside", error) from error

    def is_foreign(self, owner: Owner | None) -> bool:
        """Whether the folder is known to be somebody else's; nothing is made by asking.

        Raises:
            WorkspaceFailed: it cannot be told.
        """
        if owner is None:
            return False
        try:
            state = os.open(self.baseline.parent, FOLDER)
        except OSError:  # nothing was noted of any workspace here
            return False
        try:
            return standing(state, self.baseline.name, owner) == "foreign"
        finally:
            os.close(state)

    def _refuse_foreign(self, handle: int, told: str) -> None:
        if self.own and os.fstat(handle).st_uid != os.geteuid():
            raise WorkspaceFailed(f"{told}: this folder belongs to another user")


def _why(root: Path) -> str:
    with suppress(OSError):
        mode = os.lstat(root).st_mode
        if stat.S_ISLNK(mode):
            return "is a link and cannot be a workspace; give the folder it points to"
        if not stat.S_ISDIR(mode):
            return "is no folder and cannot be a workspace"
    return "cannot be used as a workspace"


def _folder(parent: Path, name: str) -> int:
    """A handle of a folder, made if missing; its own name may be no link."""
    above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            os.mkdir(name, OWN_MODE, dir_fd=above)
        return os.open(name, FOLDER, dir_fd=above)
    finally:
        os.close(above)


class Held:
    """The open handles of a workspace; closed when nobody uses it any more.

    Attributes:
        root: The workspace's folder.
        state: The folder of its baseline.
        notes: The folder of its notes.
    """

    __slots__ = ("__weakref__", "notes", "root", "state")

    def __init__(self, root: int, state: int, notes: int) -> None:
        self.root, self.state, self.notes = root, state, notes
        weakref.finalize(self, _close, root, state, notes)


def _close(*handles: int) -> None:
    for handle in handles:
        with suppress(OSError):
            os.close(handle)
