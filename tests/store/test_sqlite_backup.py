"""Copies are taken while the store is in use, and put back only where nobody uses it."""

import asyncio
import stat

import apsw
import pytest

from cairn.errors import ConfigError, SchemaTooNew, UnsupportedStore
from cairn.ports import Claim
from cairn.store import open_store, restore
from cairn.testing.store_journals import note
from cairn.testing.store_promises import refused
from cairn.testing.store_story import Story, create, drive

USER = """
import asyncio, sys
from cairn.store import open_store
store = open_store(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
asyncio.run(store.close())
"""


def test_a_copy_of_a_store_in_use_is_whole_private_and_one_file(tmp_path):
    path, copy = tmp_path / "cairn.db", tmp_path / "copy.db"

    async def promise():
        store = open_store(path)
        stories = [Story(f"r{n}") for n in range(8)]
        for story in stories:
            await create(store, story)
            await drive(store, story, story.tell(note("x" * 20_000)))

        async def go_on():
            for n in range(50):
                for story in stories:
                    await store.append(story.run, 1, story.tell(note(str(n))), story.index)

        writing = asyncio.ensure_future(go_on())
        await store.backup(str(copy))
        await writing
        await refused(ConfigError, store.backup(str(copy)))
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        names = {p.name for p in tmp_path.iterdir() if p.name.startswith("copy")}
        assert names == {"copy.db"}

        other = open_store(copy)
        for story in stories:
            entries = await other.read(story.run)
            assert entries == story.entries[: len(entries)]
            assert len(entries) >= 2
            assert await other.verify(story.run) == len(entries)
            assert not (await other.info(story.run)).leased
        assert await other.claim("r0") == Claim(
            epoch=2, head=(await other.info("r0")).head, previous="expired"
        )
        await other.close()
        await store.close()

    asyncio.run(promise())


def test_a_copy_put_back_replaces_the_store_whole(tmp_path):
    path, copy = tmp_path / "cairn.db", tmp_path / "copy.db"

    async def first():
        store = open_store(path)
        await create(store, Story("old"))
        await store.backup(str(copy))
        await create(store, Story("new"))
        await store.close()

    async def second():
        store = open_store(path)
        assert [line.run for line in await store.runs(where())] == ["old"]
        assert await store.verify("old") == 1
        await create(store, Story("newer"))
        await store.close()

    def where():
        from cairn.ports import RunFilter

        return RunFilter()

    asyncio.run(first())
    restore(copy, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    asyncio.run(second())
    restore(copy, tmp_path / "elsewhere.db")
    assert copy.exists()


def test_a_store_in_use_is_not_overwritten(tmp_path, spawn):
    path, copy = tmp_path / "cairn.db", tmp_path / "copy.db"
    store = open_store(path)
    asyncio.run(store.backup(str(copy)))
    for source, target in ((copy, path), (path, tmp_path / "elsewhere.db")):
        with pytest.raises(UnsupportedStore, match="close it first"):
            restore(source, target)
    asyncio.run(store.close())
    user = spawn(USER, path)
    assert user.stdout.readline() == "open\n"
    with pytest.raises(UnsupportedStore, match="in use"):
        restore(copy, path)
    user.communicate("\n")
    restore(copy, path)


def test_what_is_no_whole_copy_is_not_put_back(tmp_path):
    path, copy = tmp_path / "cairn.db", tmp_path / "copy.db"
    store = open_store(path)
    asyncio.run(create(store, Story("r")))
    asyncio.run(store.backup(str(copy)))
    asyncio.run(store.close())
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="there is no file"):
        restore(tmp_path / "missing.db", path)
    text = tmp_path / "notes.txt"
    text.write_text("no database " * 50)
    with pytest.raises(UnsupportedStore):
        restore(text, path)
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(UnsupportedStore, match="empty"):
        restore(empty, path)
    torn = tmp_path / "torn.db"
    whole = copy.read_bytes()
    torn.write_bytes(whole[:8192] + b"\0" * (len(whole) - 8192))
    with pytest.raises(Exception, match=r"damaged|malformed"):
        restore(torn, path)
    connection = apsw.Connection(str(copy))
    connection.pragma("user_version", 999)
    connection.close()
    with pytest.raises(SchemaTooNew):
        restore(copy, path)
    assert path.read_bytes() == before
