"""A disk that fails: nothing acknowledged is lost, nobody hangs, and the object says it is over."""

import asyncio

import apsw
import pytest

from cairn.errors import ConfigError, Fenced, StoreBusy, StoreFailed
from cairn.ports import Claim
from cairn.store import open_store
from cairn.store.sqlite import store as store_module
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore
from cairn.testing.store_journals import note
from cairn.testing.store_promises import refused
from cairn.testing.store_story import Story, create, drive


class FaultyFile(apsw.VFSFile):
    def __init__(self, vfs, name, flags):
        super().__init__("", name, flags)
        self.vfs = vfs
        self.log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xSync(self, flags):  # noqa: N802 - the library's names
        self.vfs.meet("sync", self.log)
        return super().xSync(flags)

    def xWrite(self, data, offset):  # noqa: N802 - the library's names
        self.vfs.meet("write", self.log)
        return super().xWrite(data, offset)


class FaultyDisk(apsw.VFS):
    """Files of the log fail when told to: at once, or after so many operations."""

    def __init__(self, name):
        super().__init__(name, "")
        self.operation = ""
        self.error = None
        self.after = 0

    def xOpen(self, name, flags):  # noqa: N802 - the library's names
        return FaultyFile(self, name, flags)

    def fail(self, operation, error, after=0):
        self.operation, self.error, self.after = operation, error, after

    def mend(self):
        self.operation = ""

    def meet(self, operation, log):
        if not log or operation != self.operation:
            return
        if self.after > 0:
            self.after -= 1
            return
        raise self.error("the disk says no")


@pytest.fixture
def disk():
    vfs = FaultyDisk("cairn-faulty")
    yield vfs
    vfs.unregister()


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
@pytest.mark.parametrize(
    ("operation", "after"), [("sync", 0), ("write", 0), ("write", 1), ("write", 3)]
)
def test_a_failed_commit_ends_the_object_and_keeps_what_was_acknowledged(
    tmp_path, disk, operation, error, after
):
    settings = Settings(path=str(tmp_path / "cairn.db"), vfs="cairn-faulty")

    async def promise():
        store = SqliteStore(settings)
        stories = [Story(f"r{n}") for n in range(4)]
        for story in stories:
            await create(store, story)
            await drive(store, story, story.tell(note("kept")))
        kept = {story.run: list(story.entries) for story in stories}
        disk.fail(operation, error, after)
        answers = await asyncio.gather(
            *(store.append(s.run, 1, s.tell(note("lost?")), s.index) for s in stories),
            return_exceptions=True,
        )
        assert {type(answer) for answer in answers} <= {StoreFailed, type(None)}
        lost = [s.run for s, a in zip(stories, answers, strict=True) if a is not None]
        assert lost
        disk.mend()
        for wish in (store.read("r0"), store.claim("r0"), store.news(0, 0.0)):
            await refused(StoreFailed, wish)
        await refused(StoreFailed, store.append("r0", 1, [], None, release=True))

        again = SqliteStore(settings)
        for story in stories:
            entries = await again.read(story.run)
            assert entries[:2] == kept[story.run]
            assert story.run in lost or len(entries) == 3
            assert await again.verify(story.run) == len(entries)
            claim = await again.claim(story.run)
            assert claim == Claim(epoch=2, head=len(entries), previous="expired")
            await again.append(story.run, 2, [], None, release=True)
        await store.close()
        await again.close()

    asyncio.run(promise())


def test_a_failed_store_is_replaced_by_whoever_opens_the_file_next(tmp_path, disk, monkeypatch):
    path = str(tmp_path / "cairn.db")
    settings = Settings(path=path, vfs="cairn-faulty")

    async def promise():
        store = SqliteStore(settings)
        monkeypatch.setitem(store_module._open, path, store)
        await create(store, Story("r"))
        assert open_store(path) is store
        disk.fail("sync", apsw.IOError)
        await refused(StoreFailed, create(store, Story("q")))
        disk.mend()
        again = open_store(path)
        assert again is not store
        assert (await again.info("r")).head == 1
        assert open_store(path) is again
        for user in (store, store, again, again):
            await user.close()

    asyncio.run(promise())


def test_a_process_that_waits_too_long_for_the_file_is_told_so_and_nothing_is_written(tmp_path):
    settings = Settings(path=str(tmp_path / "cairn.db"), patience_s=0.1)

    async def promise():
        store = SqliteStore(settings)
        story = Story("r")
        await create(store, story)
        epoch = await drive(store, story)
        other = apsw.Connection(settings.path)
        other.execute("BEGIN IMMEDIATE")
        told = story.tell(note("again"))
        wishes = [store.append("r", epoch, told, None), create(store, Story("q"))]
        answers = await asyncio.gather(*wishes, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreBusy, StoreBusy]
        assert answers[0] is not answers[1]
        assert len(await store.read("r")) == 1
        other.execute("ROLLBACK")
        other.close()
        await store.append("r", epoch, told, None)
        assert await store.read("r") == story.entries
        await store.close()

    asyncio.run(promise())


def test_an_unforeseen_fault_of_one_request_does_not_touch_the_others(tmp_path):
    async def promise():
        store = open_store(tmp_path / "cairn.db")
        stories = [Story(f"r{n}") for n in range(3)]
        for story in stories:
            await create(store, story)
            await drive(store, story)
        broken = Story("x")
        begun = broken.begin()
        bad = broken.new.__class__(run="x", agent="half of a character: \ud800", digest="d")
        answers = await asyncio.gather(
            store.append("r0", 1, stories[0].tell(note("a")), stories[0].index),
            store.create(bad, begun, broken.index),
            store.append("r1", 2, stories[1].tell(note("a")), stories[1].index),
            store.append("r2", 1, stories[2].tell(note("a")), stories[2].index),
            return_exceptions=True,
        )
        kinds = [type(answer) for answer in answers]
        assert kinds == [type(None), UnicodeEncodeError, Fenced, type(None)]
        heads = [(await store.info(story.run)).head for story in stories]
        assert heads == [2, 1, 2]
        for story in stories:
            await store.verify(story.run)
        await store.close()

    asyncio.run(promise())


def test_more_requests_than_the_queue_holds_wait_their_turn(tmp_path, monkeypatch):
    monkeypatch.setattr("cairn.store.sqlite.writer.QUEUE_MAX", 8)
    monkeypatch.setattr("cairn.store.sqlite.writer.BATCH_MAX", 3)

    async def promise():
        store = open_store(tmp_path / "cairn.db", durability="process")
        stories = [Story(f"r{n:03}") for n in range(100)]
        answers = await asyncio.gather(*(create(store, story) for story in stories))
        assert answers == [None] * 100
        await store.close()

    asyncio.run(promise())


def test_callers_on_different_event_loops_are_all_answered(tmp_path):
    store = open_store(tmp_path / "cairn.db", durability="process")

    def life(n):
        async def promise():
            story = Story(f"r{n}")
            await create(store, story)
            epoch = await drive(store, story)
            waiting = asyncio.ensure_future(store.changed(story.run, 40, 20.0))
            for k in range(40):
                await store.append(story.run, epoch, story.tell(note(str(k))), story.index)
            assert await waiting
            assert await store.read(story.run) == story.entries

        asyncio.run(promise())

    async def all_lives():
        await asyncio.gather(*(asyncio.to_thread(life, n) for n in range(4)))
        await store.close()

    asyncio.run(all_lives())


def test_closing_finishes_what_was_handed_over(tmp_path):
    path = tmp_path / "cairn.db"

    async def promise():
        store = open_store(path)
        stories = [Story(f"r{n}") for n in range(20)]
        tasks = [asyncio.ensure_future(create(store, story)) for story in stories]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*tasks) == [None] * 20
        again = open_store(path)
        assert [(await again.info(story.run)).head for story in stories] == [1] * 20
        await again.close()

    asyncio.run(promise())


def test_a_store_in_memory_has_nothing_to_copy():
    store = open_store(":memory:")
    with pytest.raises(ConfigError, match="no file to copy"):
        asyncio.run(store.backup("copy.db"))
