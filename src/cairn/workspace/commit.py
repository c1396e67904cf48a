"""Carrying changes out: all is checked and written beside its place before the first name moves."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from cairn.errors import Unsure
from cairn.workspace.descent import (
    CHUNK,
    descend,
    failed,
    kind_of,
    look,
    missing,
    open_file,
    refuse_kind,
    told_of,
)
from cairn.workspace.intents import ABSENT, Step, digest
from cairn.workspace.paths import Parts
from cairn.workspace.refusals import Changed, PathRefused, WorkspaceError
from cairn.workspace.staging import NEW_MODE, Staged, rename_new, sync_folder

SWAPPED = "swapped"
"""In place of a hash, for what became another kind of thing while it was looked at."""


@dataclass(frozen=True, slots=True)
class Put:
    """A file with this content, new or in the place of one that was looked at.

    Attributes:
        parts: Where.
        data: All of its content.
        seen: The file as it was looked at; None for one that must not be there.
        before: The hash of its content then, empty for none.
        executable: Whether it may be run; None to keep what it has.
    """

    parts: Parts
    data: bytes
    seen: os.stat_result | None = None
    before: str = ABSENT
    executable: bool | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """A file or link that was looked at is removed."""

    parts: Parts
    seen: os.stat_result
    before: str


@dataclass(frozen=True, slots=True)
class Move:
    """A file that was looked at gets another name, which must not be taken."""

    parts: Parts
    to: Parts
    seen: os.stat_result
    before: str


Change = Put | Drop | Move
BeforeFirst = Callable[[dict[str, Step]], None]
"""Called with what is about to happen, right before the first name moves; may refuse by raising."""


@dataclass(slots=True)
class _Ready:
    change: Change
    folder: int
    staged: Staged | None = None
    to_folder: int = -1


@dataclass(slots=True)
class Commit:
    """Changes that are carried out together.

    Attributes:
        root: Handle of the workspace.
        made: Folders that were made on the way.
    """

    root: int
    made: list[Parts] = field(default_factory=list)

    def run(self, changes: Sequence[Change], before_first: BeforeFirst | None = None) -> None:
        """Carry them out.

        Raises:
            WorkspaceError: one is refused or failed; all is as it was.
            Unsure: the system failed in the midst of several; says which were done.
        """
        with ExitStack() as stack:
            try:
                ready = [self._prepare(change, stack) for change in changes]
                for each in ready:
                    _recheck(each)
                if before_first is not None:
                    before_first(steps_of(changes))
                self._carry_out(ready)
            except BaseException:  # whatever stopped it, no empty folders stay
                self._unmake()
                raise

    def _prepare(self, change: Change, stack: ExitStack) -> _Ready:
        make = self.made if isinstance(change, Put) else None
        folder = stack.enter_context(descend(self.root, change.parts[:-1], make=make))
        ready = _Ready(change, folder)
        if isinstance(change, Move):
            into = descend(self.root, change.to[:-1], make=self.made)
            ready.to_folder = stack.enter_context(into)
        if isinstance(change, Put):
            mode = _mode(change)
            try:
                ready.staged = Staged(folder, change.data, change.seen, mode)
            except OSError as error:
                raise failed(told_of(change.parts), "could not be written", error) from error
            stack.callback(ready.staged.close)
        return ready

    def _carry_out(self, ready: Sequence[_Ready]) -> None:
        done: list[str] = []
        for each in sorted(ready, key=lambda one: isinstance(one.change, Drop)):
            told = told_of(each.change.parts)
            try:
                _publish(each)
            except OSError as error:
                refused = _refused(each, error)
                if done:
                    said = f"only a part was done ({', '.join(done)}), then: {refused}"
                    raise Unsure(said) from error
                raise refused from error
            done.append(told)
        try:
            for folder in {each.folder for each in ready} | {each.to_folder for each in ready}:
                if folder >= 0:
                    sync_folder(folder)
        except OSError as error:
            said = f"{', '.join(done)}: done, but the disk did not confirm it ({error.strerror})"
            raise Unsure(said) from error

    def _unmake(self) -> None:
        """Folders made for nothing go again, if they are empty."""
        for parts in reversed(self.made):
            with suppress(OSError, WorkspaceError), descend(self.root, parts[:-1]) as folder:
                os.rmdir(parts[-1], dir_fd=folder)


def _mode(change: Put) -> int:
    mode = stat.S_IMODE(change.seen.st_mode) & 0o777 if change.seen is not None else NEW_MODE
    if change.executable is None:
        return mode
    return mode | 0o111 if change.executable else mode & ~0o111


def _publish(ready: _Ready) -> None:
    match ready.change:
        case Put(parts=parts, seen=seen):
            assert ready.staged is not None  # noqa: S101 - prepared for every Put
            ready.staged.publish(parts[-1], fresh=seen is None)
        case Drop(parts=parts):
            os.unlink(parts[-1], dir_fd=ready.folder)
        case Move(parts=parts, to=to):
            rename_new(ready.folder, parts[-1], ready.to_folder, to[-1])


def _refused(ready: _Ready, error: OSError) -> WorkspaceError:
    change = ready.change
    target = change.to if isinstance(change, Move) else change.parts
    if isinstance(error, FileExistsError):
        return taken(told_of(target))
    return failed(told_of(target), "could not be changed", error)


def taken(told: str, fix: str = "Choose another name") -> PathRefused:
    """There is something of this name."""
    return PathRefused("exists", told, "this name is taken", fix)


def _recheck(ready: _Ready) -> None:
    """Right before the first step, everything must still be what it was when it was looked at."""
    change = ready.change
    now = look(ready.folder, change.parts[-1])
    if isinstance(change, Put) and change.seen is None:
        if now is not None:
            raise taken(told_of(change.parts))
        return
    if now is None or change.seen is None or _stamp(now) != _stamp(change.seen):
        said = "it was changed by somebody else meanwhile; nothing was done. Read it again"
        raise Changed(f"{told_of(change.parts)}: {said}")
    if isinstance(change, Move) and look(ready.to_folder, change.to[-1]) is not None:
        raise taken(told_of(change.to))


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (found.st_dev, found.st_ino, found.st_mode, found.st_nlink, found.st_size, *times)


def steps_of(changes: Sequence[Change]) -> dict[str, Step]:
    """What each path is and is to become."""
    steps: dict[str, Step] = {}
    for change in changes:
        path = "/".join(change.parts)
        match change:
            case Put(data=data, before=before):
                steps[path] = (before, digest(data))
            case Drop(before=before):
                steps[path] = (before, ABSENT)
            case Move(to=to, before=before):
                steps[path] = (before, ABSENT)
                steps["/".join(to)] = (ABSENT, before)
    return steps


# ---------------------------------------------------------------- looking before changing


def look_to_replace(folder: int, parts: Parts) -> os.stat_result:
    """A regular file that may be replaced.

    Raises:
        PathRefused: it is missing, no regular file, or has other names too.
    """
    told = told_of(parts)
    found = look(folder, parts[-1])
    if found is None:
        raise missing(folder, parts)
    refuse_kind(told, found)
    if found.st_nlink > 1:
        said = (
            f"it is one file under {found.st_nlink} names (hard links), which may lie outside; "
            "writing would change what the others show or part it from them"
        )
        fix = "Write another file, or delete this name first"
        raise PathRefused("hard_link", told, said, fix)
    return found


def hash_of(folder: int, parts: Parts) -> str:
    """The hash of what a name holds now: content of a file, target of a link; empty if absent."""
    found = look(folder, parts[-1])
    if found is None:
        return ABSENT
    kind = kind_of(found)
    if kind == "link":
        try:
            return "link " + digest(os.fsencode(os.readlink(parts[-1], dir_fd=folder)))
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return SWAPPED
    if kind != "file":
        return kind
    made = hashlib.sha256()
    with open_file(folder, parts) as handle:
        while piece := os.read(handle, CHUNK):
            made.update(piece)
    return made.hexdigest()
