"""A disk that can lose power: it keeps apart what was synced and what was only written.

`Disk` is a file layer of SQLite. Everything in its folder goes to the real files, so that a
store works on them as ever, and is booked a second time: the contents and the names that a sync
has made safe, and behind them each write, cut, new name and removal that none has. From these
books `Disk.picture` says what could be found if the power failed now.

What is assumed of a disk: synced bytes stay, and a write that is torn spoils no byte outside of
it. What is not: that unsynced writes reach it in order, whole, or in the file they belong to
before those of another; that a name is safe because the file's contents are.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from cairn.core.messages import Record

STORE = "cairn.db"
"""Name of the store in the folder."""

SECTOR = 512
MODES = ("synced", "written", "cut", "last", "files", "mixed")
"""How much of what was not synced is found again.

synced, written: none, all · cut, last: all before, or all after, some moment · files: all or
none of each file · mixed: each write has its own fate
"""


class Change:
    """A write, or a cut if `data` is None, that no sync has made safe."""

    __slots__ = ("data", "moment", "offset")

    def __init__(self, moment: int, offset: int, data: bytes | None) -> None:
        self.moment = moment
        self.offset = offset
        self.data = data


class Contents:
    """What one file holds, under whatever name."""

    def __init__(self, synced: bytes = b"") -> None:
        self.synced = bytearray(synced)
        self.pending: list[Change] = []
        self.name_unsafe = False
        """Its folder is synced together with its next sync, as SQLite does for new logs."""

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.synced, change.offset, change.data)
        self.pending = []


class Picture(Record, gc=False):
    """What could be found after the power failed at one moment.

    Args:
        files: Contents by name.
        mode: How the unsynced part was treated.
        marks: What was known outside at that moment, as `Disk.observe` said it.
        floor: The same when the log was last synced.
        why: `tick` or the name of what had just happened.
        number: Which of the disk's pictures it is.
    """

    files: dict[str, bytes]
    mode: str
    marks: tuple[int, ...]
    floor: tuple[int, ...]
    why: str
    number: int


class TrackedFile(apsw.VFSFile):
    """A file of the disk's folder: the real one, and its entry in the books."""

    def __init__(self, disk: Disk, path: str, flags: list[int]) -> None:
        self.disk = disk
        self.name = Path(path).name
        with disk.lock:
            super().__init__(disk.below, path, flags)
            self.contents = disk.entry(self.name, flags[0])

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - the library's names
        """Write to the real file; no sync has made it safe."""
        super().xWrite(data, offset)
        self.disk.changed(self.contents, offset, bytes(data))

    def xTruncate(self, size: int) -> None:  # noqa: N802 - the library's names
        """Cut the real file; no sync has made it safe."""
        super().xTruncate(size)
        self.disk.changed(self.contents, size, None)

    def xSync(self, flags: int) -> None:  # noqa: N802 - the library's names
        """Make what was written safe in the books; the real file needs no sync."""
        self.disk.sync(self.contents, self.name)


class Disk(apsw.VFS):
    """The file layer of one folder, in use while it is entered as a context.

    Meanwhile every database of this process goes through it; what lies outside of the folder is
    passed on untouched.

    Args:
        folder: What it watches. Files that are there already count as safe.
        chance: Decides the fates of what was not synced.
        every: A picture is taken after so many operations, and whenever `look` is called.
        observe: Asked before each picture, and before each sync of a log, what is known outside.
    """

    def __init__(
        self,
        folder: Path,
        chance: random.Random,
        every: int,
        observe: Callable[[], tuple[int, ...]],
    ) -> None:
        self.below = apsw.vfs_names()[0]
        self.lock = threading.RLock()
        self.pictures: list[Picture] = []
        self.operations = 0
        self.syncs = 0
        self.room = 1_000_000
        """Pictures that may still be taken."""
        self._folder = os.path.realpath(folder)
        self._chance = chance
        self._every = every
        self._observe = observe
        self._floor = observe()
        self._safe = {
            p.name: Contents(p.read_bytes()) for p in Path(self._folder).iterdir() if p.is_file()
        }
        self._now: dict[str, Contents] = dict(self._safe)
        self._moves: list[tuple[int, str, Contents | None]] = []
        self._shared: dict[str, int] = {}
        self._name = f"power-{id(self):x}"
        super().__init__(self._name, self.below, makedefault=True)

    @contextmanager
    def in_use(self) -> Iterator[Disk]:
        """While this lasts, databases of the folder are watched."""
        try:
            yield self
        finally:
            self.unregister()
            for descriptor in self._shared.values():
                os.close(descriptor)

    # ------------------------------------------------------------ what the library calls

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - the library's names
        """A watched file, or one of the layer below."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None or os.path.dirname(path) != self._folder:  # noqa: PTH120 - one way of thousands
            return apsw.VFSFile(self.below, name, flags)
        return TrackedFile(self, path, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - the library's names
        """Remove the name; it may be found again unless the folder was synced."""
        with self.lock:
            super().xDelete(filename, syncdir)
            if os.path.dirname(filename) == self._folder:  # noqa: PTH120 - as above
                name = Path(filename).name
                self._now.pop(name, None)
                self._moves.append((self.operations, name, None))
                if syncdir:
                    self._sync_folder()
                self._tick()

    # ------------------------------------------------------------ the books

    def entry(self, name: str, flags: int) -> Contents:
        """What stands under a name, new if it does not exist."""
        contents = self._now.get(name)
        if contents is None:
            contents = self._now[name] = Contents()
            self._moves.append((self.operations, name, contents))
        log = flags & (apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL)
        if log and flags & apsw.SQLITE_OPEN_CREATE:
            contents.name_unsafe = True
        return contents

    def changed(self, contents: Contents, offset: int, data: bytes | None) -> None:
        """Book a write or a cut."""
        with self.lock:
            contents.pending.append(Change(self.operations, offset, data))
            self._tick()

    def sync(self, contents: Contents, name: str) -> None:
        """Book a sync."""
        with self.lock:
            known = self._observe() if name == f"{STORE}-wal" else self._floor
            self._tick()
            contents.sync()
            self.syncs += 1
            if contents.name_unsafe:
                contents.name_unsafe = False
                self._sync_folder()
            self._floor = known

    def _sync_folder(self) -> None:
        for _, name, contents in self._moves:
            _move(self._safe, name, contents)
        self._moves = []

    # ------------------------------------------------------------ pictures

    def _tick(self) -> None:
        self.operations += 1
        if self.operations % self._every == 0:
            self.look("tick")

    def look(self, why: str) -> None:
        """Take a picture now."""
        with self.lock:
            if self.room <= 0:
                return
            self.room -= 1
            marks = self._observe()
            mode = self._chance.choice(MODES)
            self.pictures.append(
                Picture(
                    files=self._found(mode),
                    mode=mode,
                    marks=marks,
                    floor=self._floor,
                    why=why,
                    number=len(self.pictures),
                )
            )

    def _found(self, mode: str) -> dict[str, bytes]:
        chance = self._chance
        moment = self._moment()
        names = dict(self._safe)
        for at, name, contents in self._moves:
            if _survives(mode, at, moment, kept=chance.random() < 0.5):
                _move(names, name, contents)
        found = {}
        for name, contents in names.items():
            kept = chance.random() < 0.5
            found[name] = self._contents(contents, mode, moment, kept=kept)
        self._add_shared_memory(found)
        return found

    def _moment(self) -> int:
        pending = [c.moment for contents in self._now.values() for c in contents.pending]
        pending += [at for at, _, _ in self._moves]
        return self._chance.choice(pending) if pending else 0

    def _contents(self, contents: Contents, mode: str, moment: int, *, kept: bool) -> bytes:
        found = bytearray(contents.synced)
        for change in contents.pending:
            if mode == "mixed":
                self._fate(found, change)
            elif change.moment == moment and mode in {"cut", "last"}:
                self._tear(found, change)
            elif _survives(mode, change.moment, moment, kept=kept):
                _apply(found, change.offset, change.data)
        return bytes(found)

    def _fate(self, found: bytearray, change: Change) -> None:
        match self._chance.randrange(4):
            case 0 | 1:
                _apply(found, change.offset, change.data)
            case 2:
                self._tear(found, change)
            case _:
                pass

    def _tear(self, found: bytearray, change: Change) -> None:
        """Some of it: a beginning, some sectors, or only the room it takes."""
        data, chance = change.data, self._chance
        if data is None:
            return
        match chance.randrange(3):
            case 0:
                _apply(found, change.offset, data[: chance.randrange(len(data) + 1)])
            case 1:
                for at in range(0, len(data), SECTOR // 2):
                    if chance.random() < 0.5:
                        _apply(found, change.offset + at, data[at : at + SECTOR // 2])
            case _:
                missing = change.offset + len(data) - len(found)
                found.extend(bytes(max(0, missing)))

    def _add_shared_memory(self, found: dict[str, bytes]) -> None:
        """Nothing ever syncs the index of a log: whatever of it lies there must do no harm."""
        for name in [name for name in found if name.endswith("-wal")]:
            index = f"{name.removesuffix('-wal')}-shm"
            content = self._shared_memory(index)
            match self._chance.randrange(4):
                case 0:
                    found[index] = content
                case 1:
                    found[index] = content[: len(content) // 2]
                case 2:
                    found[index] = self._chance.randbytes(len(content))
                case _:
                    pass

    def _shared_memory(self, name: str) -> bytes:
        # the descriptor stays open: closing it would take the library's own locks away
        descriptor = self._shared.get(name)
        if descriptor is None:
            try:  # the library may remove it at any moment
                descriptor = os.open(Path(self._folder) / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
            self._shared[name] = descriptor
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _apply(found: bytearray, offset: int, data: bytes | None) -> None:
    """Write, or cut there if there is nothing to write."""
    if data is None:
        del found[offset:]
        return
    found.extend(bytes(max(0, offset + len(data) - len(found))))
    found[offset : offset + len(data)] = data


def _move(names: dict[str, Contents], name: str, contents: Contents | None) -> None:
    if contents is None:
        names.pop(name, None)
    else:
        names[name] = contents


def _survives(mode: str, at: int, moment: int, *, kept: bool) -> bool:
    match mode:
        case "written":
            return True
        case "cut":
            return at < moment
        case "last":
            return at > moment
        case "files" | "mixed":
            return kept
        case _:
            return False


def lay_out(files: Mapping[str, bytes], folder: Path) -> None:
    """Put a picture's files where a store can be opened on them."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
