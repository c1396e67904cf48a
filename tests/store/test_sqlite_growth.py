"""A long run costs what its turns cost: nothing is stored twice, and nothing grows with length."""

import asyncio

from cairn.store import open_store
from cairn.testing.store_journals import note
from cairn.testing.store_story import Story, create, drive

TEXT = 400
OVERHEAD = 160
"""Bytes a stored event may take beside its own JSON: header, salt, hash, and the tree's pages."""


def sizes(tmp_path, *lengths):
    """File sizes with a run of so many noted events."""
    found = []
    for length in lengths:
        path = tmp_path / f"{length}.db"

        async def fill(path=path, length=length):
            store = open_store(path, durability="process")
            story = Story("r")
            await create(store, story)
            epoch = await drive(store, story)
            for _ in range(length // 4):
                told = story.tell(*[note("x" * TEXT)] * 4)
                await store.append("r", epoch, told, story.index)
            await store.append("r", epoch, [], None, release=True)
            await store.close()

        asyncio.run(fill())
        found.append(path.stat().st_size)
    return found


def test_an_event_takes_its_payload_and_little_more_however_long_the_run(tmp_path):
    """B11."""
    empty, short, long = sizes(tmp_path, 0, 400, 2_000)
    early = (short - empty) / 400
    late = (long - short) / 1_600
    assert TEXT < early < TEXT + OVERHEAD + 100
    assert TEXT < late < TEXT + OVERHEAD + 100
    assert late <= early * 1.03


def test_the_same_large_payload_is_kept_once(tmp_path):
    path = tmp_path / "cairn.db"

    async def fill():
        store = open_store(path)
        story = Story("r")
        await create(store, story)
        await drive(store, story, story.tell(*[note("x" * 200_000)] * 10), release=True)
        assert await store.read("r") == story.entries
        await store.close()

    asyncio.run(fill())
    assert path.stat().st_size < 400_000


def test_a_fork_copies_nothing(tmp_path):
    path = tmp_path / "cairn.db"

    async def fill():
        store = open_store(path)
        story = Story("r")
        await create(store, story)
        await drive(store, story, story.tell(*[note("x" * 4_000)] * 100), release=True)
        for n in range(20):
            fork = Story(f"f{n}", parent=story, at=100)
            await create(store, fork)
            assert await store.verify(f"f{n}") == 101
        await store.close()

    asyncio.run(fill())
    assert path.stat().st_size < 700_000


def test_pruning_gives_the_space_back(tmp_path):
    path = tmp_path / "cairn.db"

    async def fill():
        store = open_store(path)
        for n in range(8):
            story = Story(f"r{n}")
            await create(store, story)
            told = story.tell(*[note("x" * 4_000)] * 50, note(f"{n}" * 100_000))
            await drive(store, story, told, story.finish(), release=True)
        await store.close()
        full = path.stat().st_size
        store = open_store(path)
        removed = await store.prune(story.entries[-1].at + 1)
        assert sorted(removed) == [f"r{n}" for n in range(8)]
        await store.close()
        return full

    full = asyncio.run(fill())
    assert path.stat().st_size < full / 10
