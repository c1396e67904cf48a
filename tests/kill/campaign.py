"""The kill campaign: many runs on one file, and nothing that drives them lives for long.

    python -m tests.kill.campaign --kills 500 --seed 1 --minutes 20

Several workers and a person share one SQLite file. Each of them is killed with SIGKILL at random,
stopped and woken again (now and then for longer than its lease), and started anew. The wall clock
of each process steps both ways; the file layer of some fails in the middle of a commit, with a
full disk or an I/O error, half of the write done. Effects are counted outside. When the kills are
used up a healthy process settles what is left, and everything is judged. At last the file is
damaged on copies, and the damage has to be found and said.

The seed fixes what happens to whom in which order, not the moments: those are the machine's.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import apsw
from tests.kill.damage import damage, open_at
from tests.kill.outside import WatchedStore, World, add_line, lines_of
from tests.kill.scenes import LADDER, POLICY, SCENES, STAGE, all_agents, decide
from tests.kill.sweep import ENDED, child, warm_up
from tests.kill.verdict import faults_of

from cairn import CairnError, IllegalTransition, Refused, Runtime
from cairn.core import commands as cmd
from cairn.core.messages import Text
from cairn.engine.clock import SystemClock
from cairn.errors import StoreError
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore

WORKERS = 3
ALIVE = 24
"""Runs that are open at once, about."""
EXPIRY_S = 1.0
LONGEST_STOP_S = 3.0
"""A stopped process may outsleep its lease, not the grace of a verdict."""
STEP_S = 4.0
"""How far a wall clock may be off, either way."""
SETTLE_S = 200.0
"""How far the last clock is ahead: nobody is left who could still act."""
PATIENCE_S = 120


class Stumbling(SystemClock):
    """A wall clock that is set now and then; the monotonic one is not touched."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._off_us = 0

    def now_us(self) -> int:
        if self._chance.random() < 0.02:
            self._off_us = int(self._chance.uniform(-STEP_S, STEP_S) * 1e6)
        return super().now_us() + self._off_us


class Ahead(SystemClock):
    """A clock by which all that may still be at work has had its time."""

    def now_us(self) -> int:
        return super().now_us() + int(SETTLE_S * 1e6)


class Dawdler:
    """In place of a fuse: time is lost at each point, so that a signal finds something there."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def meet(self, point: str) -> None:
        """Stores pass here: no time is lost."""
        if point.startswith("post_sync."):
            time.sleep(self._chance.uniform(0, 0.02))

    async def wait(self, point: str) -> None:
        await asyncio.sleep(self._chance.uniform(0, 0.02))


class SickDisk(apsw.VFS):
    """The write-ahead log fails now and then: full, or unreadable, half of the write done."""

    def __init__(self, chance: random.Random, faults: Path) -> None:
        super().__init__("cairn-sick", "")
        self.chance = chance
        self.faults = faults
        self.healthy_until = time.monotonic() + 0.1

    def xOpen(self, name: Any, flags: list[int]) -> "SickFile":  # noqa: N802 - the library's name
        return SickFile(self, name, flags)


class SickFile(apsw.VFSFile):
    """A file of it."""

    def __init__(self, disk: SickDisk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def _fails(self) -> bool:
        disk = self._disk
        return self._log and time.monotonic() > disk.healthy_until and disk.chance.random() < 0.02

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - the library's name
        if self._fails():
            super().xWrite(data[: len(data) // 2], offset)
            add_line(self._disk.faults, "full")
            raise apsw.FullError("no space left")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - the library's name
        if self._fails():
            add_line(self._disk.faults, "io")
            raise apsw.IOError("the disk says no")
        super().xSync(flags)


# ---------------------------------------------------------------- the processes


def make_runtime(place: Path, seed: int, *, sick: bool = False, settle: bool = False) -> Runtime:
    chance = random.Random(seed)
    world = World(place)
    disk = SickDisk(chance, place / "faults") if sick else None
    settings = Settings(
        path=os.path.realpath(place / "store.db"),
        beat_s=EXPIRY_S / 3,
        expiry_s=EXPIRY_S,
        vfs="cairn-sick" if disk else "",
    )
    fuse = Dawdler(chance)
    store = WatchedStore(SqliteStore(settings), world, fuse)
    clock = Ahead() if settle else Stumbling(chance)
    rt = Runtime(store, all_agents(), policy=POLICY, ladder=LADDER, clock=clock)
    rt.disk = disk  # a file layer lives as long as somebody holds it
    STAGE.world, STAGE.fuse, STAGE.client = world, fuse, rt.client
    return rt


async def work(place: Path, seed: int, sick: bool) -> str:
    """Drive what there is, until killed, or until the disk fails."""
    with contextlib.suppress(StoreError):
        rt = make_runtime(place, seed, sick=sick)
        working = asyncio.ensure_future(rt.work_async())
        while not working.done() and not rt.store.failed:
            await asyncio.wait({working}, timeout=0.05)
    os._exit(0)  # nothing can be given back to a file that fails


async def people(place: Path, seed: int, most: int) -> str:
    """Hand tasks over, decide, cancel, pause, resume and say things, until killed."""
    chance = random.Random(seed)
    rt = make_runtime(place, seed)
    while True:
        open_runs = await rt.runs_async(status=("queued", "running", "waiting", "paused"))
        if len(open_runs) < ALIVE:
            number = len(lines_of(place / "tasks"))
            if number < most:
                add_line(place / "tasks", f"k{number}")
            for words in lines_of(place / "tasks")[-3:]:  # who was killed has not handed it over
                await hand_over(rt, words[0])
        for info in chance.sample(open_runs, min(4, len(open_runs))):
            with contextlib.suppress(Refused, IllegalTransition):
                await meddle(rt, info.run, chance)
        await asyncio.sleep(0.01)


async def hand_over(rt: Runtime, run: str) -> None:
    """The same task under the same id, whoever hands it over."""
    number = int(run[1:])
    name = sorted(SCENES)[number % len(SCENES)]
    await rt.enqueue_async(name, f"task {number}", id=run)


async def meddle(rt: Runtime, run: str, chance: random.Random) -> None:
    """One thing that people do."""
    match chance.choices(("decide", "cancel", "pause", "resume", "say"), (60, 1, 4, 25, 6))[0]:
        case "cancel":
            await rt.client.submit(run, cmd.Cancel(reason="enough"))
        case "pause":
            await rt.client.submit(run, cmd.Pause())
        case "resume":
            await rt.client.submit(run, cmd.Resume())
        case "say":
            await rt.client.submit(run, cmd.Queue(parts=(Text("mind the gap"),)))
        case _:
            await decide(rt, run, STAGE.world, denies=True)


async def settle(place: Path) -> int:
    """Bring every run to its end; how many there are."""
    rt = make_runtime(place, 0, settle=True)
    for words in lines_of(place / "tasks"):
        await hand_over(rt, words[0])
    while True:
        await rt.work_async(until_idle=True)
        left = await rt.runs_async(status=("queued", "running", "waiting", "paused"), limit=10_000)
        if not left:
            break
        for info in left:
            with contextlib.suppress(Refused, IllegalTransition):
                await rt.client.submit(info.run, cmd.Resume())
                await decide(rt, info.run, STAGE.world, denies=True)
        await asyncio.sleep(0.05)
    await rt.close_async()
    return len(lines_of(place / "tasks"))


async def judge(place: Path) -> dict[str, Any]:
    """What is wrong, and how much there was."""
    store = open_at(place / "store.db")
    world = World(place)
    runs = [words[0] for words in lines_of(place / "tasks")]
    found = await faults_of(store, world, runs)
    ends: Counter[str] = Counter()
    events = 0
    unknown = late = settled = 0
    for run in runs:
        info = await store.info(run)
        ends[info.status] += 1
        if info.status not in ENDED:
            found.append(f"{run} is still {info.status}")
        names = Counter(entry.event.NAME for entry in await store.read(run))
        events += names.total()
        unknown += names["tool.unknown"]
        late += names["tool.late"]
        settled += names["tool.resolved"]
    await store.close()
    return {
        "found": found,
        "ends": dict(ends),
        "events": events,
        "unknown": unknown,
        "late": late,
        "resolved": settled,
        "effects": len(world.effects()),
        "models": world.asked().total(),
    }


# ---------------------------------------------------------------- the campaign


@dataclass
class Report:
    """What happened in a campaign."""

    kills: int = 0
    stops: int = 0
    long_stops: int = 0
    faults: int = 0
    processes: int = 0
    runs: int = 0
    judged: dict[str, Any] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


class Campaign:
    """Keeps the processes coming, and takes them away."""

    def __init__(self, place: Path, seed: int) -> None:
        self.report = Report()
        self._place = place
        self._chance = random.Random(seed)
        self._alive: dict[str, int] = {}
        self._stopped: dict[str, float] = {}
        self._most = 10_000

    def run(self, kills: int, seconds: float) -> Report:
        """Kill so many, within this time, then settle and judge."""
        ends = time.monotonic() + seconds
        roles = ["person", *(f"worker{n}" for n in range(WORKERS))]
        while self.report.kills < kills and time.monotonic() < ends:
            for role in roles:
                self._keep(role)
            time.sleep(self._chance.uniform(0.01, 0.12))
            self._strike(self._chance.choice(roles))
        for role in roles:
            self._kill(role)
        self.report.faults = len(lines_of(self._place / "faults"))
        self._settle()
        return self.report

    def _keep(self, role: str) -> None:
        """See that somebody plays a role, and wake who has slept enough."""
        wakes = self._stopped.get(role)
        if wakes is not None and time.monotonic() >= wakes:
            os.kill(self._alive[role], signal.SIGCONT)
            del self._stopped[role]
        if role in self._alive:
            done, status = os.waitpid(self._alive[role], os.WNOHANG)
            if not done:
                return
            code = os.waitstatus_to_exitcode(status)
            if code:
                self.report.violations.append(f"{role} ended with {code} by itself")
            del self._alive[role]
        self._alive[role] = self._start(role)

    def _start(self, role: str) -> int:
        self.report.processes += 1
        seed = self._chance.getrandbits(32)
        sick = self._chance.random() < 0.2
        pid = os.fork()
        if pid:
            return pid
        try:
            if role == "person":
                asyncio.run(people(self._place, seed, self._most))
            else:
                asyncio.run(work(self._place, seed, sick))
        except CairnError as error:
            add_line(self._place / "refusals", f"{role} {type(error).__name__} {error}")
            os._exit(0)
        finally:
            os._exit(70)

    def _strike(self, role: str) -> None:
        if role not in self._alive or role in self._stopped:
            return  # who sleeps is to wake up and find out what has happened meanwhile
        if self._chance.random() < 0.75:
            self._kill(role)
        else:
            seconds = self._chance.choice((0.05, 0.2, 0.5, 1.5, LONGEST_STOP_S))
            os.kill(self._alive[role], signal.SIGSTOP)
            self._stopped[role] = time.monotonic() + seconds
            self.report.stops += 1
            self.report.long_stops += seconds > EXPIRY_S

    def _kill(self, role: str) -> None:
        """SIGKILL; one that has just ended by itself is no kill."""
        pid = self._alive.pop(role, 0)
        self._stopped.pop(role, None)
        if not pid:
            return
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        self.report.kills += os.waitstatus_to_exitcode(status) == -signal.SIGKILL

    def _settle(self) -> None:
        report = self.report
        for name, job in (("settle", settle), ("judge", judge), ("damage", damage)):
            status, said = child(self._place, job, limit_s=PATIENCE_S)
            if status:
                report.violations.append(f"{name} ended with {status}: {said}")
                return
            match name:
                case "settle":
                    report.runs = said
                case "judge":
                    report.judged = said
                    report.violations += said.pop("found")
                case "damage":
                    report.violations += said.pop("found")
                    report.damaged = said


def campaign(kills: int, seed: int, seconds: float, place: str | None = None) -> Report:
    """A whole campaign in a folder of its own."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="cairn-campaign-", dir=place) as folder:
        return Campaign(Path(folder), seed).run(kills, seconds)


def serve(job: dict[str, Any]) -> None:
    """A job of the zygote."""
    out = Path(job["result"])
    out.with_suffix(".part").write_text(json.dumps(asdict(campaign(**job["campaign"]))))
    out.with_suffix(".part").rename(out)


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--kills", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--minutes", type=float, default=20.0)
    options.add_argument("--place", help="a folder on the disk that is to hold the file")
    given = options.parse_args()
    warm_up()
    begun = time.monotonic()
    report = campaign(given.kills, given.seed, given.minutes * 60, given.place)
    print(
        f"seed {given.seed}: {report.kills} kills, {report.stops} stops ({report.long_stops} "
        f"longer than the lease of {EXPIRY_S:g} s), {report.faults} faults of the disk, "
        f"{report.processes} processes, {report.runs} runs, {time.monotonic() - begun:.0f} s"
    )
    print("journals:", ", ".join(f"{name} {value}" for name, value in report.judged.items()))
    print("damage:", ", ".join(f"{name} {value}" for name, value in report.damaged.items()))
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, "
        f"SQLite {apsw.sqlite_lib_version()}"
    )
    for violation in report.violations[:50]:
        print("VIOLATION", violation)
    print(len(report.violations), "violations")
    return 1 if report.violations or report.kills < given.kills else 0


if __name__ == "__main__":
    sys.exit(main())
