"""The power fails: what was synced is there, of the rest any part, torn or out of order.

A file layer keeps apart what was written and what was synced. At many moments a picture is taken
of what a disk could hold if the power failed just then, and a store is opened on it.
"""

import asyncio
import random
from pathlib import Path

import apsw
import pytest

from cairn.core.events import ErrorRaised
from cairn.errors import UnknownRun
from cairn.store import open_store
from cairn.store.sqlite import connection
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore
from cairn.testing.store_journals import note
from cairn.testing.store_story import Story, create, drive

RUNS = 3
APPENDS = 25
EVERY = 7
"""Operations between two pictures."""


class Image:
    """A file as the disk has it, and what it was told since the last sync."""

    def __init__(self):
        self.synced = bytearray()
        self.pending = []

    def sync(self):
        for operation in self.pending:
            apply(self.synced, *operation)
        self.pending = []

    def after_power_loss(self, chance):
        content = bytearray(self.synced)
        for offset, data in self.pending:
            fate = chance.choice(["kept", "lost", "torn"])
            if fate != "lost":
                keep = len(data or b"") // 2 if fate == "torn" else None
                apply(content, offset, data if data is None else data[:keep])
        return bytes(content)


def apply(content, offset, data):
    """Write, or cut there if there is nothing to write."""
    if data is None:
        del content[offset:]
        return
    content.extend(bytes(max(0, offset + len(data) - len(content))))
    content[offset : offset + len(data)] = data


class TrackedFile(apsw.VFSFile):
    def __init__(self, disk, name, flags):
        super().__init__("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self.disk = disk
        self.image = disk.images.setdefault(Path(path).name, Image())

    def xWrite(self, data, offset):  # noqa: N802 - the library's names
        self.disk.tick()
        self.image.pending.append((offset, bytes(data)))
        return super().xWrite(data, offset)

    def xTruncate(self, size):  # noqa: N802 - the library's names
        self.disk.tick()
        self.image.pending.append((size, None))
        return super().xTruncate(size)

    def xSync(self, flags):  # noqa: N802 - the library's names
        self.disk.tick()
        super().xSync(flags)
        self.image.sync()


class Disk(apsw.VFS):
    def __init__(self, name):
        super().__init__(name, "")
        self.images = {}
        self.acknowledged = {}
        self.pictures = []
        self.ticks = 0
        self.chance = random.Random(7)

    def xOpen(self, name, flags):  # noqa: N802 - the library's names
        return TrackedFile(self, name, flags)

    def xDelete(self, path, sync):  # noqa: N802 - the library's names
        self.images.pop(Path(path).name, None)
        super().xDelete(path, sync)

    def tick(self):
        self.ticks += 1
        if self.acknowledged and self.ticks % EVERY == 0:
            files = {n: i.after_power_loss(self.chance) for n, i in self.images.items()}
            self.pictures.append((dict(self.acknowledged), files))


@pytest.fixture
def disk(monkeypatch):
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 12)
    vfs = Disk("cairn-power")
    yield vfs
    vfs.unregister()


def live(disk, path, durability):
    """Runs append and note what was acknowledged, while pictures are taken."""

    async def life(store, run):
        story = Story(run)
        await create(store, story)
        epoch = await drive(store, story)
        disk.acknowledged[run] = 1
        for n in range(APPENDS):
            told = story.tell(note(f"{n}"), note("x" * 600))
            await store.append(run, epoch, told, story.index)
            disk.acknowledged[run] = told[-1].seq

    async def lives():
        settings = Settings(path=str(path), durability=durability, vfs="cairn-power")
        store = SqliteStore(settings)
        await asyncio.gather(*(life(store, f"r{n}") for n in range(RUNS)))
        await store.close()

    asyncio.run(lives())


def heads_after(folder, files):
    """What a store opened on these files holds; every journal in it is whole."""
    folder.mkdir()
    for name, content in files.items():
        if content:
            (folder / name).write_bytes(content)

    async def look():
        store = open_store(folder / "cairn.db")
        heads = {}
        for n in range(RUNS):
            try:
                heads[f"r{n}"] = await store.verify(f"r{n}")
            except UnknownRun:
                heads[f"r{n}"] = -1
                continue
            entries = await store.read(f"r{n}")
            messages = [e.event.message for e in entries if isinstance(e.event, ErrorRaised)]
            assert messages[::2] == [str(k) for k in range(len(messages) // 2)]
        await store.close()
        return heads

    return asyncio.run(look())


@pytest.mark.parametrize("durability", ["full", "process"])
def test_full_durability_keeps_all_that_was_acknowledged_and_process_a_beginning(
    tmp_path, disk, durability
):
    live(disk, tmp_path / "cairn.db", durability)
    pictures = [picture for picture in disk.pictures if len(picture[0]) == RUNS]
    assert len(pictures) > 10
    behind = 0
    for number, (acknowledged, files) in enumerate(pictures):
        heads = heads_after(tmp_path / f"after-{number}", files)
        for run, seq in acknowledged.items():
            assert heads[run] >= seq or durability == "process"
            assert heads[run] % 2 == 1, "no half of an append is there"
            behind += heads[run] < seq
    assert behind == 0 or durability == "process"
