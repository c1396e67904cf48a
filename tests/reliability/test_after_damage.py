"""What was found with the power off or the disk gone, each once more as a promise."""

import asyncio
import random

import pytest
from tests.engine.kit import Ledger, TurnedClock, runtime
from tests.reliability.test_disks_and_clocks import all_questions, filled

from cairn import Runtime, call, tool
from cairn.errors import CairnError, Refused, StoreFailed
from cairn.store import open_store
from cairn.store.inmemory import InMemoryStore
from cairn.testing.power_disk import STORE, Disk, lay_out
from cairn.testing.store_journals import note
from cairn.testing.store_story import Story, create, drive


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_nothing_is_acknowledged_in_a_file_that_is_no_longer_there(tmp_path, what):
    path, other = tmp_path / "cairn.db", tmp_path / "other.db"

    async def promise():
        store, second = open_store(path), open_store(other)
        story = Story("r")
        await create(store, story)
        epoch = await drive(store, story)
        await second.close()
        if what == "removed":
            path.unlink()
        else:
            other.replace(path)
        with pytest.raises(StoreFailed, match="removed, or another was put in its place"):
            await store.append("r", epoch, story.tell(note("lost?")), story.index)
        with pytest.raises(StoreFailed):
            await store.claim("r")
        await store.close()

    asyncio.run(promise())


def test_a_late_yes_by_a_slow_clock_is_refused_by_the_time_of_the_journal():
    async def main():
        @tool(effect="dangerous")
        async def pay() -> str:
            return ledger.add("paid")

        ledger, journals, clock = Ledger(), InMemoryStore(), TurnedClock()
        rt = runtime(
            [call("pay"), "done"], [pay], store=journals, clock=clock, approval_days=1 / 48
        )
        await rt.run_async("a", "task", id="r")
        await Runtime(journals, clock=TurnedClock(clock.now + 3_600_000_000)).pause_async("r")
        with pytest.raises(Refused, match="expired"):
            await rt.client.approve("r/1")

    asyncio.run(main())


def test_a_store_whose_making_was_cut_off_is_made_by_whoever_opens_it_next(tmp_path):
    (tmp_path / "live").mkdir()
    disk = Disk(tmp_path / "live", random.Random(2), 1_000_000, lambda: (0,))

    async def promise(path):
        store = open_store(path)
        await create(store, Story("r"))
        assert await store.verify("r") == 1
        await store.close()

    def looking(self):
        self.operations += 1
        for _ in range(6):
            self.look("tick")

    with disk.in_use():
        disk._tick = looking.__get__(disk)
        asyncio.run(promise(tmp_path / "live" / STORE))
    for picture in disk.pictures[:90]:
        lay_out(picture.files, tmp_path / f"{picture.number}")
        store = open_store(tmp_path / f"{picture.number}" / STORE)
        asyncio.run(store.close())
    assert len(disk.pictures) > 60


def test_damage_anywhere_is_an_error_of_the_house_and_never_the_librarys(tmp_path):
    filled(tmp_path / "good.db")
    good, told = (tmp_path / "good.db").read_bytes(), 0
    for seed in range(60):
        chance, content = random.Random(seed), bytearray(good)
        for _ in range(chance.choice((1, 2, 20))):
            at, length = chance.randrange(len(good)), chance.choice((1, 8, 64, 512))
            content[at : at + length] = chance.randbytes(len(content[at : at + length]))
        path = tmp_path / f"{seed}.db"
        path.write_bytes(content)
        try:
            asyncio.run(all_questions(path))
        except CairnError:
            told += 1
    assert told > 10


@pytest.mark.parametrize("where", ["run SET digest", "event SET actor"])
def test_bytes_that_are_no_text_are_a_damaged_journal_and_no_bare_error(tmp_path, where):
    import apsw

    async def main():
        rt = runtime(["done"], store=tmp_path / "cairn.db")
        await rt.run_async("a", "task", id="r")
        await rt.close_async()
        connection = apsw.Connection(str(tmp_path / "cairn.db"))
        connection.execute(f"UPDATE {where} = CAST(x'ff' AS TEXT)")
        connection.close()
        store = open_store(tmp_path / "cairn.db")
        try:
            asked = store.info("r") if where.startswith("run") else store.read("r")
            with pytest.raises(CairnError, match="is damaged"):
                await asked
        finally:
            await store.close()

    asyncio.run(main())
