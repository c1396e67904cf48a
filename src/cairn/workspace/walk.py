"""Going through all that lies in a folder, links not followed, bounded in number and depth."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from cairn.workspace.descent import FOLDER, Kind, kind_of
from cairn.workspace.paths import TEMP_PREFIX, Parts, nameable

TEMP = re.compile(re.escape(TEMP_PREFIX) + r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Found:
    """One thing in a workspace.

    Attributes:
        parts: The names down to it; may hold bytes that are no UTF-8 (as surrogates).
        kind: What it is.
        size: Bytes of a file; 0 for everything else.
        mode: Permission bits.
        nameable: Whether the tools take its path.
    """

    parts: Parts
    kind: Kind
    size: int
    mode: int
    nameable: bool = True


@dataclass(slots=True)
class Walk:
    """A walk below a held folder, in the order of the names.

    Attributes:
        folder: Handle of the folder to begin at.
        most: How many things are looked at.
        depth: How many folders deep.
        cut: Whether there was more than `most`, known when the walk is over.
        deep: Whether a folder was not gone into because of `depth`, likewise.
        leftover: Folder and name of each unfinished file that was met.
    """

    folder: int
    most: int
    depth: int
    cut: bool = False
    deep: bool = False
    leftover: list[tuple[Parts, str]] = field(default_factory=list)
    _left: int = 0

    def __iter__(self) -> Iterator[Found]:
        self.cut, self.deep, self._left = False, False, self.most
        self.leftover.clear()
        yield from self._below(self.folder, ())

    def _below(self, folder: int, parts: Parts) -> Iterator[Found]:
        for name, status in self._entries(folder):
            if stat.S_ISREG(status.st_mode) and TEMP.fullmatch(name):
                self.leftover.append((parts, name))
                continue
            if self._left <= 0:
                self.cut = True
                return
            self._left -= 1
            inner = (*parts, name)
            yield found_of(inner, status)
            if stat.S_ISDIR(status.st_mode):
                yield from self._into(folder, inner)

    def _into(self, folder: int, parts: Parts) -> Iterator[Found]:
        if len(parts) >= self.depth:
            self.deep = True
            return
        try:
            handle = os.open(parts[-1], FOLDER, dir_fd=folder)
        except OSError:  # gone, swapped, or not for us: what cannot be opened is not gone into
            return
        try:
            yield from self._below(handle, parts)
        finally:
            os.close(handle)

    def _entries(self, folder: int) -> list[tuple[str, os.stat_result]]:
        found = []
        try:
            with os.scandir(folder) as entries:
                for entry in islice(entries, self._left + 1):
                    with suppress(OSError):  # gone meanwhile
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        except OSError:  # a folder that cannot be read holds nothing for us
            return []
        return sorted(found, key=lambda each: each[0])


def found_of(parts: Parts, status: os.stat_result) -> Found:
    """What the system says of a name, in our words."""
    kind = kind_of(status)
    return Found(
        parts=parts,
        kind=kind,
        size=status.st_size if kind == "file" else 0,
        mode=stat.S_IMODE(status.st_mode),
        nameable=all(map(nameable, parts)),
    )
