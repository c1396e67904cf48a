"""What was changed, cut or zeroed in the file is found, and the message says where."""

import asyncio
import hashlib

import apsw
import pytest

from cairn.errors import CorruptJournal
from cairn.store import open_store
from cairn.testing.store_journals import note
from cairn.testing.store_promises import refused
from cairn.testing.store_story import LATER, Story, create, drive


@pytest.fixture
def path(tmp_path):
    """A store with the run `r` of nine events, one of them large, and its fork `f` of seven."""
    path = tmp_path / "cairn.db"

    async def fill():
        store = open_store(path)
        story = Story("r")
        await create(store, story)
        told = [e for n in range(7) for e in story.tell(note(f"n{n}"))]
        told += story.tell(note("large " * 5_000))
        await drive(store, story, told, release=True)
        fork = Story("f", parent=story, at=5)
        await create(store, fork)
        await drive(store, fork, fork.tell(note("own")), release=True)
        assert await store.verify("r") == 9
        assert await store.verify("f") == 7
        await store.close()

    asyncio.run(fill())
    return path


def damage(path, *statements):
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def verdicts(path, run):
    """What `verify` and `read` say of a run."""

    async def ask():
        store = open_store(path)
        found = []
        for question in (store.verify, store.read):
            try:
                await question(run)
                found.append("fine")
            except CorruptJournal as error:
                found.append(str(error))
        await store.close()
        return found

    return asyncio.run(ask())


EVENT_3 = "(SELECT no << 32 FROM run WHERE id = 'r') + 3"


@pytest.mark.parametrize(
    ("change", "verified", "read"),
    [
        (f"DELETE FROM event WHERE id = {EVENT_3}", "event 3 is missing", "event 3 is missing"),
        (
            f"UPDATE event SET data = zeroblob(length(data)) WHERE id = {EVENT_3}",
            "event 3 was changed",
            "event 3: error.raised cannot be read",
        ),
        (
            f"UPDATE event SET data = substr(data, 1, 9) WHERE id = {EVENT_3}",
            "event 3 was changed",
            "event 3: error.raised cannot be read",
        ),
        (f"UPDATE event SET at = at + 1 WHERE id = {EVENT_3}", "event 3 was changed", "fine"),
        (f"UPDATE event SET actor = 'eve' WHERE id = {EVENT_3}", "event 3 was changed", "fine"),
        (f"UPDATE event SET salt = randomblob(16) WHERE id = {EVENT_3}", "event 3 was", "fine"),
        (f"UPDATE event SET hash = randomblob(32) WHERE id = {EVENT_3}", "event 3 was", "fine"),
        (
            f"UPDATE event SET type = 250 WHERE id = {EVENT_3}",
            "event 3 was changed",
            "event 3: event type 250 is unknown",
        ),
        ("DELETE FROM blob", "payload of event 9 is missing", "payload of event 9 is missing"),
        ("UPDATE blob SET data = zeroblob(9)", "event 9 was changed", "event 9: error.raised"),
        (
            "DELETE FROM event WHERE id & 4294967295 = 9",
            "event 9 is missing",
            "event 9 is missing",
        ),
        (
            "UPDATE run SET head = 7 WHERE id = 'r'",
            "event 8 stands after the end",
            "fine",
        ),
        ("UPDATE run SET hash = zeroblob(32) WHERE id = 'r'", "event 9 is not the one", "fine"),
    ],
)
def test_damage_is_found_and_its_place_is_named(path, change, verified, read):
    """B51: a part that was cut, zeroed or lost is reported with its place."""
    damage(path, change)
    found = verdicts(path, "r")
    for said, expected in zip(found, (verified, read), strict=True):
        assert expected in said
        assert said == "fine" or said.startswith("r: ")


def test_damage_in_the_shared_prefix_is_damage_of_the_fork_too(path):
    damage(path, f"DELETE FROM event WHERE id = {EVENT_3}")
    assert verdicts(path, "f") == ["r: event 3 is missing"] * 2


def test_damage_behind_the_fork_is_not_the_forks_concern(path):
    damage(path, f"DELETE FROM event WHERE id = {EVENT_3} + 4")
    assert verdicts(path, "f") == ["fine", "fine"]
    assert verdicts(path, "r") == ["r: event 7 is missing"] * 2


def test_swapped_rows_are_found(path):
    swap = "UPDATE event SET id = {} WHERE id = {}"
    damage(
        path,
        swap.format("-1", EVENT_3),
        swap.format(EVENT_3, f"{EVENT_3} + 1"),
        swap.format(f"{EVENT_3} + 1", "-1"),
    )
    assert "r: event 3 was changed" in verdicts(path, "r")[0]


def test_an_erased_event_keeps_the_chain_whole_but_cannot_be_read(path):
    connection = apsw.Connection(str(path))
    row = connection.execute(f"SELECT salt, data FROM event WHERE id = {EVENT_3}").fetchone()
    digest = hashlib.sha256(row[0] + row[1]).digest()
    connection.execute(f"UPDATE event SET data = NULL, salt = ? WHERE id = {EVENT_3}", (digest,))
    connection.close()
    verified, read = verdicts(path, "r")
    assert verified == "fine"
    assert "event 3 was erased" in read


def test_a_damaged_run_harms_no_other_and_is_not_pruned(path):
    """B51: what is good is read, and written to."""
    damage(path, f"DELETE FROM event WHERE id = {EVENT_3}", "DELETE FROM run WHERE id = 'f'")

    async def promise():
        store = open_store(path)
        story = Story("q")
        await create(store, story)
        await drive(store, story, story.finish(), release=True)
        claim = await store.claim("r")
        assert claim.head == 9
        failed = Story("r")
        failed.follow([])
        await store.append("r", 2, [], story.index, release=True)
        assert (await store.info("r")).status == "completed"
        assert await store.prune(LATER) == ["q"]
        await refused(CorruptJournal, store.read("r"))
        await store.close()

    asyncio.run(promise())


def test_an_event_that_stands_where_the_next_one_belongs_is_reported_not_overwritten(path):
    damage(
        path,
        "INSERT INTO event SELECT id + 1, at, step, actor, type, v, data, blob, salt, hash "
        "FROM event WHERE id = (SELECT no << 32 | head FROM run WHERE id = 'r')",
    )

    async def promise():
        store = open_store(path)
        claim = await store.claim("r")
        story = Story("r")
        story.follow(await store.read("r"))
        told = story.tell(note("next"))
        await refused(CorruptJournal, store.append("r", claim.epoch, told, story.index))
        other = Story("q")
        assert await create(store, other) is None
        await store.append("r", claim.epoch, [], None, release=True)
        await store.close()

    asyncio.run(promise())
