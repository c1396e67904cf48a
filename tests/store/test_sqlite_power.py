"""The power fails: what was synced is there, of the rest any part, torn or out of order.

Here the store is driven alone, with several writers in one file and a log that is copied back
all the time. Whole runs are in `tests/reliability/test_power_runs.py`.
"""

import asyncio
import random

import pytest

from cairn.core.events import ErrorRaised
from cairn.errors import UnknownRun
from cairn.store import open_store
from cairn.store.sqlite import connection
from cairn.testing.power_disk import MODES, STORE, Disk, lay_out
from cairn.testing.store_journals import note
from cairn.testing.store_story import Story, create, drive

RUNS = [f"r{n}" for n in range(3)]
APPENDS = 25
EVERY = 7
"""Operations between two pictures."""


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Lets runs append and note what was acknowledged, while pictures are taken."""

    def play(durability):
        monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 12)
        heads = dict.fromkeys(RUNS, 0)
        (tmp_path / "live").mkdir()
        disk = Disk(tmp_path / "live", random.Random(7), EVERY, lambda: tuple(heads.values()))

        async def life(store, run):
            story = Story(run)
            await create(store, story)
            epoch = await drive(store, story)
            heads[run] = 1
            for n in range(APPENDS):
                told = story.tell(note(f"{n}"), note("x" * 600))
                await store.append(run, epoch, told, story.index)
                heads[run] = told[-1].seq

        async def lives():
            store = open_store(tmp_path / "live" / STORE, durability=durability)
            await asyncio.gather(*(life(store, run) for run in RUNS))
            await store.close()

        with disk.in_use():
            asyncio.run(lives())
        return [picture for picture in disk.pictures if any(picture.marks)]

    return play


def heads_after(folder, files):
    """What a store opened on these files holds; every journal in it is whole."""
    lay_out(files, folder)

    async def look():
        store = open_store(folder / STORE)
        heads = []
        for run in RUNS:
            try:
                heads.append(await store.verify(run))
            except UnknownRun:
                heads.append(0)
                continue
            entries = await store.read(run)
            messages = [e.event.message for e in entries if isinstance(e.event, ErrorRaised)]
            assert messages[::2] == [str(k) for k in range(len(messages) // 2)]
        await store.close()
        return heads

    return asyncio.run(look())


@pytest.mark.parametrize("durability", ["full", "process"])
def test_full_durability_keeps_all_that_was_acknowledged_and_process_a_beginning(
    tmp_path, played, durability
):
    pictures = played(durability)
    assert len(pictures) > 10
    assert {picture.mode for picture in pictures} == set(MODES)
    behind = 0
    for picture in pictures:
        heads = heads_after(tmp_path / f"after-{picture.number}", picture.files)
        safe = picture.marks if durability == "full" else picture.floor
        for head, acknowledged, floor in zip(heads, picture.marks, safe, strict=True):
            assert head >= floor
            assert head == 0 or head % 2 == 1, "no half of an append is there"
            behind += head < acknowledged
    assert (behind == 0) == (durability == "full")


def test_a_disk_loses_what_was_not_synced_and_keeps_what_was(tmp_path):
    marks = [0]
    disk = Disk(tmp_path, random.Random(1), 1_000_000, lambda: tuple(marks))
    with disk.in_use():
        kept = disk.entry("a", 0)
        disk.changed(kept, 0, b"safe")
        disk.look("written")
        disk._sync_folder()
        disk.sync(kept, "a")
        disk.changed(kept, 4, b" and not")
        for _ in range(300):
            disk.look("later")
    found = {picture.files.get("a") for picture in disk.pictures[1:]}
    assert all(content.startswith(b"safe") for content in found)
    assert {b"safe", b"safe and not"} < found, "lost, kept, and torn"
    assert len(found) > 5


def test_a_name_may_be_lost_until_its_folder_was_synced(tmp_path):
    disk = Disk(tmp_path, random.Random(1), 1_000_000, lambda: (0,))
    with disk.in_use():
        contents = disk.entry("a", 0)
        disk.changed(contents, 0, b"safe")
        disk.sync(contents, "a")
        for _ in range(60):
            disk.look("not yet")
        disk._sync_folder()
        for _ in range(60):
            disk.look("safe")
    before = [picture.files.get("a") for picture in disk.pictures if picture.why == "not yet"]
    after = [picture.files.get("a") for picture in disk.pictures if picture.why == "safe"]
    assert None in before
    assert b"safe" in before
    assert set(after) == {b"safe"}
