"""Processes die, freeze and fork; runs are never stuck with them, and never driven twice."""

import asyncio
import os
import signal
import time

import pytest

from cairn.errors import StoreClosed, UnsupportedStore
from cairn.ports import Claim, RunFilter
from cairn.store import open_store
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore
from cairn.testing.store_story import LATER

OWNER = """
import asyncio, sys
from cairn.errors import Fenced
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore
from cairn.testing.store_journals import note
from cairn.testing.store_story import Story, create, drive

async def main(path, expiry_s):
    store = SqliteStore(Settings(path=path, beat_s=expiry_s / 4, expiry_s=expiry_s))
    story = Story("r")
    await create(store, story)
    epoch = await drive(store, story, story.ask())
    print("driving", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        await store.append("r", epoch, story.tell(note("I am back")), story.index)
        print("appended", flush=True)
    except Fenced:
        print("fenced", flush=True)
    await store.close()

asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""

PATIENCE_S = 20.0


def said(process):
    return process.stdout.readline().strip()


@pytest.mark.kill
def test_the_runs_of_a_killed_process_are_free_at_once_and_that_is_news(tmp_path, spawn):
    path = tmp_path / "cairn.db"
    owner = spawn(OWNER, path, 30.0)
    assert said(owner) == "driving"

    async def watch():
        store = open_store(path)
        assert await store.claim("r") is None
        assert (await store.info("r")).leased
        assert await store.runnable(["shop"], LATER) == []
        token = await store.news(0, PATIENCE_S)
        while (now := await store.news(token, 1.5)) != token:
            token = now
        owner.kill()
        owner.wait()
        assert await store.news(token, PATIENCE_S) > token
        assert await store.runnable(["shop"], LATER) == ["r"]
        assert not (await store.info("r")).leased
        assert await store.claim("r") == Claim(epoch=2, head=4, previous="dead")
        assert await store.verify("r") == 4
        names = {p.name for p in (tmp_path / "cairn.db.owners").glob("*.lock")}
        assert len(names) == 1, "the dead owner's lock file is swept away"
        await store.append("r", 2, [], None, release=True)
        await store.close()

    asyncio.run(watch())


@pytest.mark.kill
def test_a_frozen_process_loses_its_run_by_expiry_and_is_fenced_when_it_wakes(tmp_path, spawn):
    path = str(tmp_path / "cairn.db")
    owner = spawn(OWNER, path, 1.0)
    assert said(owner) == "driving"

    async def take_over():
        store = SqliteStore(Settings(path=path, beat_s=0.25, expiry_s=1.0))
        os.kill(owner.pid, signal.SIGSTOP)
        while (claim := await store.claim("r")) is None:  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(0.05)
        assert claim == Claim(epoch=2, head=4, previous="expired")
        os.kill(owner.pid, signal.SIGCONT)
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert await asyncio.to_thread(said, owner) == "fenced"
        assert len(await store.read("r")) == 4
        await store.append("r", 2, [], None, release=True)
        await store.close()

    asyncio.run(take_over())


@pytest.mark.kill
def test_an_owner_that_lives_keeps_its_run_past_the_expiry(tmp_path, spawn):
    path = str(tmp_path / "cairn.db")
    owner = spawn(OWNER, path, 0.4)
    assert said(owner) == "driving"

    async def wait():
        store = SqliteStore(Settings(path=path, expiry_s=0.4))
        for _ in range(20):
            await asyncio.sleep(0.05)
            assert await store.claim("r") is None
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert await asyncio.to_thread(said, owner) == "appended"
        await store.close()

    asyncio.run(wait())


FORKING = """
import asyncio, os, sys, time
from cairn.errors import StoreClosed, UnsupportedStore
from cairn.store import open_store
from cairn.testing.store_story import Story, create, drive

store = open_store(sys.argv[1])

async def own():
    story = Story("r")
    await create(store, story)
    await drive(store, story, story.ask())

asyncio.run(own())
if os.fork() == 0:
    seen = []
    for attempt in (lambda: asyncio.run(store.info("r")), lambda: open_store(sys.argv[1])):
        try:
            attempt()
        except (StoreClosed, UnsupportedStore) as error:
            seen.append(type(error).__name__)
    asyncio.run(store.close())
    print(os.getpid(), *seen, flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


@pytest.mark.kill
def test_a_forked_child_neither_uses_the_store_nor_keeps_its_lock(tmp_path, spawn):
    path = tmp_path / "cairn.db"
    owner = spawn(FORKING, path)
    child, *seen = said(owner).split()
    assert seen == [StoreClosed.__name__, UnsupportedStore.__name__]

    async def take_over():
        store = open_store(path)
        assert await store.claim("r") is None
        owner.kill()
        owner.wait()
        os.kill(int(child), 0)
        claim = await store.claim("r")
        assert claim == Claim(epoch=2, head=4, previous="dead")
        await store.append("r", 2, [], None, release=True)
        assert await store.verify("r") == 4
        await store.close()

    try:
        asyncio.run(take_over())
    finally:
        os.kill(int(child), signal.SIGKILL)


CALL = """
import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(descriptor, fcntl.LOCK_EX)
os.set_inheritable(descriptor, True)
if os.fork():
    os._exit(0)
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.kill
def test_a_call_lives_while_any_child_process_holds_its_lock_file(tmp_path, spawn):
    store = open_store(tmp_path / "cairn.db")
    assert not store.call_alive("r", "c1")
    tool = spawn(CALL, store.lock_path("r", "c1"))
    grandchild = int(said(tool))
    tool.wait()
    assert store.call_alive("r", "c1")
    assert not store.call_alive("r", "c2")
    os.kill(grandchild, signal.SIGKILL)
    while store.call_alive("r", "c1"):
        time.sleep(0.01)
    asyncio.run(store.close())


WRITER = """
import asyncio, sys
from cairn.store import open_store
from cairn.testing.store_journals import note
from cairn.testing.store_story import Story, create, drive

async def run(store, name, appends):
    story = Story(name)
    await create(store, story)
    epoch = await drive(store, story)
    for n in range(appends):
        await store.append(name, epoch, story.tell(note(str(n)), note("x")), story.index)
    await store.append(name, epoch, [], None, release=True)

async def main(path, me, appends):
    store = open_store(path)
    await asyncio.gather(*(run(store, f"{me}-{n}", appends) for n in range(4)))
    await store.close()
    print("done", flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.slow
def test_processes_that_write_flat_out_on_one_file_lose_nothing_and_see_no_lock(tmp_path, spawn):
    """B52, between processes."""
    path = tmp_path / "cairn.db"
    writers = [spawn(WRITER, path, f"p{n}", 100) for n in range(4)]

    async def read_meanwhile():
        store = open_store(path)
        while any(writer.poll() is None for writer in writers):
            for line in await store.runs(RunFilter()):
                assert await store.verify(line.run) >= line.head
            await asyncio.sleep(0.05)
        heads = {line.run: line.head for line in await store.runs(RunFilter())}
        assert heads == {f"p{p}-{n}": 201 for p in range(4) for n in range(4)}
        for run in heads:
            assert await store.verify(run) == 201
        await store.close()

    asyncio.run(read_meanwhile())
    assert [said(writer) for writer in writers] == ["done"] * 4
    assert [writer.wait() for writer in writers] == [0] * 4


@pytest.mark.kill
def test_what_a_killed_writer_acknowledged_is_there(tmp_path, spawn):
    path = tmp_path / "cairn.db"
    program = WRITER.replace(
        "story.index)\n    await", "story.index); print(name, n, flush=True)\n    await", 1
    )
    writer = spawn(program, path, "p", 10_000)
    lines = [said(writer) for _ in range(200)]
    writer.kill()
    rest = writer.communicate()[0].splitlines()
    acknowledged = {}
    for line in [*lines, *rest]:
        if len(parts := line.split()) == 2 and parts[1].isdecimal():
            acknowledged[parts[0]] = int(parts[1])

    async def check():
        store = open_store(path)
        for run, n in acknowledged.items():
            head = await store.verify(run)
            assert head >= 1 + 2 * (n + 1)
            messages = [e.event.message for e in (await store.read(run))[1::2]]
            assert messages == [str(k) for k in range(len(messages))]
            assert (await store.claim(run)).previous == "dead"
        await store.close()

    assert len(acknowledged) == 4
    asyncio.run(check())
