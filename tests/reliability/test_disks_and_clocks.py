"""Disks that fill up, fail, or were changed by others, and clocks that jump.

Whatever they do: a typed error says what to do, what was acknowledged stays, and the same run
goes on when all is well again.
"""

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest
from tests.engine.kit import DAY_US, Ledger, TurnedClock, events, names, runtime

from cairn import ModelError, Policy, Runtime, call, tool
from cairn.core import events as ev
from cairn.core.commands import Queue
from cairn.core.messages import Text
from cairn.errors import (
    CairnError,
    CorruptJournal,
    ErrorClass,
    Refused,
    StoreFailed,
    UnknownRun,
    UnsupportedStore,
)
from cairn.store import open_store
from cairn.store.inmemory import InMemoryStore
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore
from cairn.testing.store_journals import note
from cairn.testing.store_story import START, Story, create, drive

ROOT = Path(__file__).parents[2]
HOUR_US = 3_600_000_000
OVER = {"completed", "failed", "stopped", "cancelled"}


def poster(ledger):
    @tool(effect="write", conflict_key="n")
    async def post(n: int) -> str:
        ledger.add(f"post {n}")
        return f"{n} is posted"

    return post


# ---------------------------------------------------------------- a full disk


def own_mounts():
    """What starts a process that can mount without anybody else seeing it; None if nothing."""
    for options in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        command = ["unshare", *options]
        trial = [*command, "mount", "-t", "tmpfs", "trial", "/mnt"]
        if shutil.which("unshare"):
            done = subprocess.run(trial, capture_output=True, check=False)
            if done.returncode == 0:
                return command
    return None


@pytest.mark.slow
@pytest.mark.parametrize("how", ["limit", "mount"])
def test_a_run_goes_on_when_there_is_room_on_the_disk_again(tmp_path, how):
    """On a real small disk where one can be mounted; with a limit on the file's size anywhere."""
    before = own_mounts() if how == "mount" else []
    if before is None:
        how, before = "limit", []
    (tmp_path / "disk").mkdir()
    worker = ROOT / "tests" / "reliability" / "full_disk_worker.py"
    command = [*before, sys.executable, worker, how, tmp_path / "disk", tmp_path / "ledger"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "StoreFailed True",
        "kept True True",
        "completed 14 15 True",
        "whole True",
    ], done.stderr
    posted = (tmp_path / "ledger").read_text().split()
    assert sorted(map(int, posted)) == list(range(14)), "each effect once"


# ---------------------------------------------------------------- faults of the file layer


class FaultyFile(apsw.VFSFile):
    def __init__(self, vfs, name, flags):
        super().__init__(vfs.below, name, flags)
        self.vfs = vfs

    def xSync(self, flags):  # noqa: N802 - the library's names
        self.vfs.meet("sync")
        return super().xSync(flags)

    def xWrite(self, data, offset):  # noqa: N802 - the library's names
        self.vfs.meet("write")
        return super().xWrite(data, offset)

    def xRead(self, amount, offset):  # noqa: N802 - the library's names
        self.vfs.meet("read")
        return super().xRead(amount, offset)


class FaultyDisk(apsw.VFS):
    """From its n-th operation of a kind on it fails, until it is mended."""

    def __init__(self):
        self.below = apsw.vfs_names()[0]
        super().__init__("reliability-faulty", self.below)
        self.operation, self.error, self.after, self.failed = "", None, 0, False

    def xOpen(self, name, flags):  # noqa: N802 - the library's names
        return FaultyFile(self, name, flags)

    def fail(self, operation, error, after):
        self.operation, self.error, self.after, self.failed = operation, error, after, False

    def mend(self):
        self.operation = ""

    def meet(self, operation):
        if operation == self.operation:
            self.after -= 1
            if self.after < 0:
                self.failed = True
                raise self.error("the disk says no")


@pytest.fixture
def disk():
    vfs = FaultyDisk()
    yield vfs
    vfs.unregister()


SCRIPT = [[call("post", n=1), call("post", n=2)], call("post", n=3), "done"]


async def run_over_a_fault(path, disk, fault):
    """A run meets a fault of the disk; it is mended, and a new store goes on. None: no fault."""
    ledger = Ledger()
    settings = Settings(path=str(path), vfs="reliability-faulty")
    first = runtime(SCRIPT, [poster(ledger)], store=SqliteStore(settings))
    told = []
    first.host.watchers.watch("r", lambda run, what: told.append(what))
    disk.fail(*fault)
    error = None
    try:
        await first.run_async("a", "task", id="r")
    except CairnError as raised:
        error = raised
    failed = disk.failed
    disk.mend()
    rt = runtime(SCRIPT, [poster(ledger)], store=SqliteStore(settings))
    await first.close_async()
    run = await rt.run_async("a", "task", id="r")
    for pending in run.pending:
        number = pending.detail[-2]
        await rt.resolve_async(pending.id, happened=bool(ledger.times(f"post {number}")))
    run = await rt.run_async("a", "task", id="r")
    kept = await rt.store.read("r")
    assert run.status == "completed"
    assert all(entry in kept for entry in told if isinstance(entry, ev.Entry))
    assert await rt.store.verify("r") == len(kept)
    assert sorted(ledger.lines) == ["post 1", "post 2", "post 3"]
    await rt.close_async()
    return error if failed else None


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError, apsw.ReadOnlyError])
@pytest.mark.parametrize("operation", ["sync", "write"])
def test_a_run_goes_on_after_a_fault_at_any_commit(tmp_path, disk, operation, error):
    """An I/O error, a full disk, or one that was made read-only, at every n-th operation."""
    faults = 0
    stride = {"sync": 1 if error is apsw.IOError else 3, "write": 9}[operation]
    for after in range(0, 90, stride):
        path = tmp_path / f"{after}.db"
        met = asyncio.run(run_over_a_fault(path, disk, (operation, error, after)))
        if not disk.failed:
            break
        assert isinstance(met, StoreFailed)
        assert "Open the store again" in str(met)
        faults += 1
    assert faults >= 3


def test_a_fault_of_reading_is_told_and_ends_nothing(tmp_path, disk):
    settings = Settings(path=str(tmp_path / "cairn.db"), vfs="reliability-faulty")

    async def promise():
        store = SqliteStore(settings)
        story = Story("r")
        await create(store, story)
        epoch = await drive(store, story, story.tell(note("large " * 9_000)))
        await store.close()
        again = SqliteStore(settings)
        disk.fail("read", apsw.IOError, 0)
        for question in (again.read, again.verify, again.info):
            with pytest.raises(StoreFailed, match=r"cairn\.db"):
                await question("r")
        disk.mend()
        assert await again.read("r") == story.entries
        claim = await again.claim("r")
        assert claim.epoch == epoch + 1
        await again.append("r", claim.epoch, story.tell(note("on")), None, release=True)
        assert await again.verify("r") == 3
        await again.close()

    asyncio.run(promise())


# ---------------------------------------------------------------- files changed by others


def filled(path):
    """A store with two runs, one with a large payload and one that waits for a person."""

    async def fill():
        store = open_store(path)
        for name in ("r", "q"):
            story = Story(name, session=f"of {name}")
            await create(store, story)
            for n in range(60):
                said = Queue(parts=(Text(f"message {n}"),), id=f"{name}-{n}")
                story.follow([(await store.submit(name, story.state, said, START))[1]])
            head = (await store.info("store")).head
            titles = [
                ev.SessionTitled(session=f"of {name}", title=f"lamps {n} " * 7) for n in range(60)
            ]
            facts = [ev.Entry(seq=n, at=START, event=e) for n, e in enumerate(titles, head + 1)]
            await store.keep(head, facts)
            told = [e for n in range(40) for e in story.tell(note(f"{n} " * 40))]
            await drive(store, story, told, story.tell(note("large " * 5_000)), story.ask())
        await store.close()

    asyncio.run(fill())


async def all_questions(path):
    store = open_store(path)
    try:
        for name in ("r", "q"):
            for question in (store.info, store.read, store.rows, store.verify, store.claim):
                await question(name)
        await store.pending()
        await store.runnable(["shop"], 0)
        for name in ("r", "q"):
            await store.session_head(f"of {name}")
            await store.session_open(f"of {name}")
            for n in range(60):
                await store.message(f"{name}-{n}")
        await store.sessions()
        await store.unread(["shop"])
    finally:
        await store.close()


@pytest.mark.parametrize("garbage", [b"not a store at all", b"\x00" * 5_000, os.urandom(5_000)])
def test_a_garbage_file_is_refused_and_left_as_it_is(tmp_path, garbage):
    path = tmp_path / "cairn.db"
    path.write_bytes(garbage)
    with pytest.raises((UnsupportedStore, CorruptJournal), match=r"cairn\.db"):
        open_store(path)
    assert path.read_bytes() == garbage


def test_a_page_of_garbage_is_an_error_of_the_house_wherever_it_lies(tmp_path):
    filled(tmp_path / "good.db")
    good = (tmp_path / "good.db").read_bytes()
    chance, told = random.Random(3), 0
    for at in range(0, len(good), 4_096):
        path = tmp_path / f"{at}.db"
        path.write_bytes(good[: at + 100] + chance.randbytes(3_996) + good[at + 4_096 :])
        try:
            asyncio.run(all_questions(path))
        except CairnError:
            told += 1
    assert told > len(good) // 4_096 // 2


def cut_copies(path):
    """Copies of a store that is open, each with less of the log."""
    copies = subprocess.run(["cat", f"{path}-wal"], capture_output=True, check=True)
    for keep in range(0, len(copies.stdout), 8_000):
        copy = path.with_name(f"cut-{keep}.db")
        subprocess.run(["cp", path, copy], check=True)
        Path(f"{copy}-wal").write_bytes(copies.stdout[:keep])
        yield copy


def test_a_log_that_was_cut_leaves_a_beginning_with_a_whole_chain(tmp_path):
    path = tmp_path / "cairn.db"

    async def promise():
        store = open_store(path)
        story = Story("r")
        await create(store, story)
        epoch = await drive(store, story)
        for n in range(12):
            await store.append("r", epoch, story.tell(note(f"{n}")), story.index)
        lengths = set()
        for copy in cut_copies(path):
            cut = open_store(copy)
            try:
                lengths.add(await cut.verify("r"))
                entries = await cut.read("r")
                assert entries == story.entries[: len(entries)]
            except UnknownRun:
                lengths.add(0)
            await cut.close()
        assert len(lengths) > 5
        await store.close()

    asyncio.run(promise())


# ---------------------------------------------------------------- clocks


class Jumpy(TurnedClock):
    """A clock whose wall time is set by hand; the monotonic one never jumps."""

    def __init__(self, jumps=()):
        super().__init__()
        self.off = 0
        self.jumps = list(jumps)

    def now_us(self):
        if self.jumps:
            self.off = self.jumps.pop(0)
        self.now += 1_000
        return self.now + self.off


def asker(ledger):
    @tool(effect="write", name="refund")
    async def refund(n: int = 1) -> str:
        return ledger.add(f"refund {n}")

    return refund


ASK = Policy(effects={"write": "allow"}, tools={"refund": "ask"})


@pytest.mark.parametrize("seed", range(12))
def test_times_in_the_journal_never_fall_however_the_clock_jumps(seed):
    async def main():
        chance = random.Random(seed)
        steps = (-HOUR_US, 0, DAY_US, -DAY_US, HOUR_US, -1, 1)
        clock = Jumpy(chance.choice(steps) for _ in range(400))
        ledger = Ledger()
        failing = {(2, 1)}

        def model(request):
            if (request.turn, request.attempt) in failing:
                raise ModelError(ErrorClass.OVERLOADED, "busy")
            return [call("post", n=1), call("refund"), call("post", n=2), "done"][request.turn]

        rt = runtime(model, [poster(ledger), asker(ledger)], policy=ASK, clock=clock)
        run = await rt.run_async("a", "task", id="r")
        while run.pending:
            try:
                await rt.client.approve("r/1")
            except CairnError:
                clock.jumps = []
            run = await rt.run_async("a", "task", id="r")
        trace = await rt.trace_async("r")
        assert run.status == "completed"
        assert [e.at for e in trace] == sorted(e.at for e in trace)
        assert all(ledger.times(line) == 1 for line in ledger.lines)
        spans = [e.event.duration_us for e in trace if hasattr(e.event, "duration_us")]
        assert all(0 <= span < HOUR_US // 60 for span in spans), "durations are monotonic"

    asyncio.run(main())


def test_a_request_expires_by_the_time_that_was_recorded_whichever_way_the_clock_jumped():
    async def main():
        ledger, clock = Ledger(), Jumpy()
        script = [call("refund"), "done"]
        rt = runtime(script, [asker(ledger)], policy=ASK, clock=clock, approval_days=1)
        run = await rt.run_async("a", "task", id="r")
        expires_at = run.pending[0].expires_at
        clock.off = -HOUR_US
        assert (await rt.run_async("a", "task", id="r")).pending[0].expires_at == expires_at
        clock.off = DAY_US + HOUR_US
        with pytest.raises(Refused, match="expired"):
            await rt.client.approve("r/1")
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, ledger.lines) == ("completed", [])
        clock.off = 0
        with pytest.raises(CairnError):
            await rt.client.approve("r/1")
        expired = events(await rt.trace_async("r"), ev.ApprovalExpired)
        assert len(expired) == 1

    asyncio.run(main())


def test_a_yes_by_a_slow_clock_does_not_revive_what_the_journal_has_passed():
    """Another machine, an hour ahead, has written after the request expired."""

    async def main():
        ledger, journals, clock = Ledger(), InMemoryStore(), TurnedClock()
        rt = runtime(
            [call("refund"), "done"],
            [asker(ledger)],
            store=journals,
            policy=ASK,
            clock=clock,
            approval_days=1 / 48,
        )
        await rt.run_async("a", "task", id="r")
        await Runtime(journals, clock=TurnedClock(clock.now + HOUR_US)).pause_async("r")
        with pytest.raises(CairnError, match="expired"):
            await rt.client.approve("r/1")
        run = await rt.resume_async("r")
        assert (run.status, ledger.lines) == ("completed", [])

    asyncio.run(main())


@pytest.mark.parametrize("jump", [-HOUR_US, -1, 0, DAY_US])
def test_a_wait_for_another_attempt_is_longer_by_the_jump_at_most(jump):
    async def main():
        clock = Jumpy()

        def model(request):
            if request.attempt == 1:
                clock.jumps = [0, 0, jump]
                raise ModelError(ErrorClass.RATE_LIMITED, "slow down", retry_after_s=20.0)
            return "done"

        rt = runtime(model, clock=clock)
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert clock.off == jump
        assert sum(clock.slept) <= 21.0 + max(0, -jump) / 1e6

    asyncio.run(main())


@pytest.mark.parametrize("jump_s", [-86_400, -3_600, 3_600, 86_400])
def test_leases_do_not_depend_on_the_wall_clock(tmp_path, monkeypatch, jump_s):
    settings = Settings(path=str(tmp_path / "cairn.db"))
    real, real_ns = time.time, time.time_ns

    async def promise():
        owner, other = SqliteStore(settings), SqliteStore(settings)
        story = Story("r")
        await create(owner, story)
        epoch = await drive(owner, story)
        monkeypatch.setattr(time, "time", lambda: real() + jump_s)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + jump_s * 1_000_000_000)
        assert await other.claim("r") is None
        assert (await other.info("r")).leased
        assert await other.runnable(["shop"], 2**62) == []
        await owner.append("r", epoch, story.tell(note("mine")), story.index, release=True)
        claim = await other.claim("r")
        assert (claim.epoch, claim.previous) == (epoch + 1, "released")
        await other.append("r", claim.epoch, [], None, release=True)
        await owner.close()
        await other.close()

    asyncio.run(promise())


def test_a_change_of_summer_time_changes_nothing(monkeypatch):
    """B76: all times are UTC: an hour that comes twice on the wall comes once in the journal."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        for instant in (
            1_793_512_799,
            1_772_953_199,
        ):  # both change nights of 2026, a second before

            async def main(instant=instant):
                ledger, clock = Ledger(), TurnedClock(instant * 1_000_000)
                rt = runtime([call("refund"), "done"], [asker(ledger)], policy=ASK, clock=clock)
                run = await rt.run_async("a", "task", id="r")
                assert run.pending[0].expires_at == instant * 1_000_000 + 7 * DAY_US
                clock.turn(2)
                await rt.client.approve("r/1")
                assert (await rt.run_async("a", "task", id="r")).status == "completed"
                trace = await rt.trace_async("r")
                assert {e.at - instant * 1_000_000 for e in trace} == {0, 2_000_000}
                assert ledger.lines == ["refund 1"]

            asyncio.run(main())
    finally:
        monkeypatch.undo()
        time.tzset()


OTHER_CLOCK = """
import asyncio, sys, time
from cairn import Agent, Policy, Runtime, Scripted, call, tool
from cairn.engine.clock import SystemClock

class Off(SystemClock):
    def now_us(self):
        return super().now_us() + int(sys.argv[2]) * 1_000_000

@tool(effect="write")
async def refund(n: int) -> str:
    with open(sys.argv[3], "a") as file:
        file.write(f"{n} ")
    return "refunded"

async def main():
    script = [call("refund", n=1), call("refund", n=2), call("refund", n=3), "done"]
    agent = Agent("a", Scripted(script), tools=[refund])
    async with Runtime(sys.argv[1], agents=[agent], clock=Off()) as rt:
        run = await rt.run_async("a", "task", id="r")
        print(run.status, *[p.id for p in run.pending])
        if sys.argv[4] == "approve":
            for pending in run.pending:
                await rt.client.approve(pending.id)

asyncio.run(main())
"""


@pytest.mark.slow
def test_processes_with_clocks_an_hour_apart_carry_one_run_through(tmp_path):
    path, ledger = tmp_path / "cairn.db", tmp_path / "ledger"
    said = []
    for n in range(7):
        off = "3600" if n % 2 == 0 else "0"
        command = [sys.executable, "-c", OTHER_CLOCK, path, off, ledger, "approve"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
        if said[-1] == "completed":
            break
    assert said == ["waiting r/1", "waiting r/2", "waiting r/3", "completed"]
    assert ledger.read_text().split() == ["1", "2", "3"]

    async def look():
        store = open_store(path)
        trace = await store.read("r")
        assert [e.at for e in trace] == sorted(e.at for e in trace)
        assert await store.verify("r") == len(trace)
        assert "approval.expired" not in names(trace)
        await store.close()

    asyncio.run(look())
