"""How much a workspace holds: counted once, kept up, counted anew before anything is refused."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from contextlib import suppress

from cairn.core.messages import Record
from cairn.workspace.commit import Change, Drop, Move, Put
from cairn.workspace.descent import descend
from cairn.workspace.limits import WorkspaceLimits
from cairn.workspace.paths import Parts
from cairn.workspace.refusals import PathRefused, WorkspaceError, WorkspaceLimit
from cairn.workspace.staging import remove_leftover
from cairn.workspace.walk import Walk

LOOKED_AT = 4
"""Times the allowed number of files up to which all that is there is looked at."""


class Usage(Record):
    """How much a workspace holds: bytes of files, and files, folders and links together."""

    total_bytes: int = 0
    files: int = 0


class Accounts:
    """What one open workspace holds, against its limits. Its owner holds a lock around it.

    Attributes:
        most: How many things are looked at.
        deepest: How deep.
        trusted: Whether nobody else is known to write there; otherwise every question counts.
    """

    def __init__(self, limits: WorkspaceLimits) -> None:
        self._limits = limits
        self._usage: Usage | None = None
        self.trusted = True
        self.most = limits.files * LOOKED_AT
        self.deepest = limits.depth * 2

    def usage(self, root: int) -> Usage:
        """As far as it is known."""
        if self._usage is None or not self.trusted:
            return self.count(root)
        return self._usage

    def count(self, root: int, *, tidy: bool = False) -> Usage:
        """Look at all that is there; `tidy` removes what killed writers left."""
        walk = Walk(root, self.most, self.deepest)
        size = files = 0
        for found in walk:
            size += found.size
            files += 1
        if tidy:
            for parts, name in walk.leftover:
                with suppress(WorkspaceError), descend(root, parts) as folder:
                    remove_leftover(folder, name)
        self._usage = Usage(total_bytes=size, files=files)
        return self._usage

    def forget(self) -> None:
        """It is not known any more; the next who asks counts."""
        self._usage = None

    def refuse_excess(self, root: int, changes: Sequence[Change]) -> None:
        """Raise `WorkspaceLimit` if there would be too many bytes or files after the changes."""
        size, files = _growth(changes)
        files += _missing_folders(root, changes)
        if self._excess(self.usage(root), size, files) is not None:
            excess = self._excess(self.count(root), size, files)
            if excess is not None:
                raise excess

    def _excess(self, usage: Usage, size: int, files: int) -> WorkspaceLimit | None:
        limits = self._limits
        total, count = usage.total_bytes + size, usage.files + files
        if size > 0 and total > limits.total_bytes:
            said = "the workspace has no room for so many bytes. Remove or shorten files first"
            return WorkspaceLimit("total_bytes", total, limits.total_bytes, said)
        if files > 0 and count > limits.files:
            said = "the workspace has no room for more files and folders. Remove some first"
            return WorkspaceLimit("files", count, limits.files, said)
        return None

    def settle(self, changes: Sequence[Change], made: int) -> None:
        """The changes were carried out, and so many folders made."""
        if self._usage is not None:
            size, files = _growth(changes)
            self._usage = Usage(
                total_bytes=self._usage.total_bytes + size, files=self._usage.files + files + made
            )


def _growth(changes: Sequence[Change]) -> tuple[int, int]:
    """By how many bytes and files a workspace grows."""
    size = files = 0
    for change in changes:
        match change:
            case Put(data=data, seen=seen):
                size += len(data) - (seen.st_size if seen is not None else 0)
                files += seen is None
            case Drop(seen=seen):
                size -= seen.st_size if stat.S_ISREG(seen.st_mode) else 0
                files -= 1
            case Move():
                pass
    return size, files


def _missing_folders(root: int, changes: Sequence[Change]) -> int:
    """How many folders would have to be made on the way."""
    wanted: set[Parts] = set()
    for change in changes:
        target = change.to if isinstance(change, Move) else change.parts
        wanted |= {target[:depth] for depth in range(1, len(target))}
    return sum(not _is_folder(root, parts) for parts in wanted)


def _is_folder(root: int, parts: Parts) -> bool:
    try:
        with descend(root, parts):
            return True
    except PathRefused as error:
        if error.rule != "missing":
            raise
        return False
