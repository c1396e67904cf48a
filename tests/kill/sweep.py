"""The failpoint sweep: a process dies at each point of its life, and again at each of its recovery.

    python -m tests.kill.sweep                       the first crash at every point of every scene
    python -m tests.kill.sweep --square              and the second at every point of the recovery
    python -m tests.kill.sweep --scene approval --square

A point stands before and after each write of the store, each model request, tool body, probe and
check. A life is what it takes to bring a scene's runs to their end: a process that drives, one
that decides what it waits for, and so on, each forked from this one. The points of a life are
counted over its processes. A second crash begins from a copy of what the first one left behind.
"""

import argparse
import asyncio
import gc
import importlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kill.outside import Fuse, WatchedStore, World, lines_of
from tests.kill.scenes import (
    LADDER,
    POLICY,
    RULES,
    SCENES,
    STAGE,
    Scene,
    all_agents,
    decide,
    undoes,
)
from tests.kill.verdict import (
    faults_of,
    faults_of_facts,
    faults_of_recalls,
    faults_of_undoing,
)

from cairn import Runtime
from cairn.store import open_store

ENDED = {"completed", "failed", "stopped", "cancelled"}
ROUNDS = 12
"""Processes that may drive, at most, until all is over."""
CHILD_S = 20
"""A child that takes longer hangs."""


@dataclass
class Figures:
    """What a sweep has counted."""

    points: int = 0
    pairs: int = 0
    lives: int = 0
    processes: int = 0
    kills: int = 0
    missed: int = 0
    """Points that were not met again, because work that overlaps came in another order."""
    names: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def add(self, other: "Figures") -> None:
        for name in ("points", "pairs", "lives", "processes", "kills", "missed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.names.update(other.names)
        self.violations += other.violations

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "names": dict(self.names)}


# ---------------------------------------------------------------- one process


def child(
    place: Path, work: Callable[..., Any], *args: Any, limit_s: int = CHILD_S
) -> tuple[int, Any]:
    """Fork a process that does some work: how it ended, and what it said."""
    out = place / "said"
    out.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            signal.alarm(limit_s)
            out.write_text(json.dumps(asyncio.run(work(place, *args))))
            status = 0
        except BaseException:  # whatever it was, the report is to hold it
            out.write_text(json.dumps(traceback.format_exc()))
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(out.read_text()) if out.exists() else None


def make_runtime(place: Path, burns_at: int) -> tuple[Runtime, World]:
    world = World(place)
    fuse = Fuse(place / "points", burns_at)
    store = WatchedStore(open_store(place / "store.db"), world, fuse)
    rt = Runtime(store, all_agents(), policy=POLICY, ladder=LADDER, memory=RULES)
    STAGE.world, STAGE.fuse, STAGE.client = world, fuse, rt.client
    return rt, world


async def drive(place: Path, name: str, burns_at: int) -> dict[str, str]:
    """Drive the runs of a scene as far as they go."""
    scene = SCENES[name]
    rt, _ = make_runtime(place, burns_at)
    said: dict[str, str] = {}
    try:
        for run in runs_of(scene):
            if run == "r-again":
                await rt.client.retry("r", "r-again")
            else:
                session = "s" if scene.session else ""
                await rt.enqueue_async(name, f"task of {run}", id=run, session=session)
            said[run] = (await rt.drive_async(run)).status
            if said[run] not in ENDED:
                break
    finally:
        await rt.close_async()
    return said


def runs_of(scene: Scene) -> tuple[str, ...]:
    if scene.retried:
        return ("r", "r-again")
    return ("r", "r2") if scene.session else ("r",)


async def meddle(place: Path, name: str, run: str, burns_at: int) -> None:
    """Be the person a run waits for."""
    scene = SCENES[name]
    rt, world = make_runtime(place, burns_at)
    try:
        if scene.person is not None:
            await scene.person(rt, run)
        await decide(rt, run, world, denies=scene.denies)
    finally:
        await rt.close_async()


async def judge(place: Path, name: str) -> list[str]:
    """What is wrong with what is left."""
    scene = SCENES[name]
    store = open_store(place / "store.db")
    world = World(place)
    try:
        runs = runs_of(scene)
        found = await faults_of(store, world, runs)
        status = (await store.info("r")).status
        if status not in scene.ends:
            found.append(f"r: it ended {status}")
        for run in runs[1:]:
            again = (await store.info(run)).status
            if again != "completed":
                found.append(f"{run}: it ended {again}")
        times = Counter(effect.tool for effect in world.effects() if effect.run == "r")
        if scene.person is undoes:
            found += faults_of_undoing(await store.read("r"))
        if scene.remembers:
            found += await faults_of_facts(store, world, scene.facts)
            found += faults_of_recalls(await store.read("r"), [(2,)])
        for tool, exact in scene.exact.items():
            if times[tool] != exact:
                found.append(f"r: {tool} happened {times[tool]} times, not {exact}")
    finally:
        await store.close()
    return found


# ---------------------------------------------------------------- one life


class Sweep:
    """One scene, its folder, and what was found.

    Args:
        share: Which of so many parts of the points is swept here, as (part, of).
    """

    def __init__(self, name: str, folder: Path, share: tuple[int, int] = (0, 1)) -> None:
        self.name = name
        self.figures = Figures()
        self._share = share
        self._place = folder / "place"
        self._blank = folder / "blank"
        self._crashed = folder / "crashed"
        self._blank.mkdir(parents=True)
        self.child(self._blank, _make_empty)

    def child(self, place: Path, work: Callable[..., Any], *args: Any) -> tuple[int, Any]:
        self.figures.processes += 1
        return child(place, work, *args)

    def first(self) -> None:
        """A crash at every point."""
        for burns_at in self._mine(self._survey(self._blank)):
            self.figures.points += 1
            if self._crash(self._blank, burns_at):
                self._recover(f"killed at {burns_at} ({self._last_point()})")

    def square(self, firsts: Iterator[int] | None = None) -> None:
        """A crash at every point, and another at every point of its recovery."""
        for burns_at in firsts or self._mine(self._survey(self._blank)):
            self.figures.points += 1
            if not self._crash(self._blank, burns_at):
                continue
            first = f"killed at {burns_at} ({self._last_point()})"
            _copy(self._place, self._crashed)
            for again_at in range(1, self._survey(self._crashed, first) + 1):
                self.figures.pairs += 1
                if self._crash(self._crashed, again_at):
                    self._recover(f"{first}, again at {again_at} ({self._last_point()})")

    def _mine(self, points: int) -> Iterator[int]:
        part, parts = self._share
        return iter(range(1 + part, points + 1, parts))

    def _survey(self, start: Path, history: str = "never killed") -> int:
        """How many points a life has from here on that nobody ends."""
        _copy(start, self._place)
        self._recover(history)
        passed = lines_of(self._place / "points")
        self.figures.names.update(words[0] for words in passed)
        return len(passed)

    def _crash(self, start: Path, burns_at: int) -> bool:
        _copy(start, self._place)
        killed = self._live(burns_at)
        if not killed:
            self.figures.missed += 1
        return killed

    def _recover(self, history: str) -> None:
        (self._place / "points").unlink(missing_ok=True)
        try:
            self._live(0)
            status, found = self.child(self._place, judge, self.name)
            faults = found if status == 0 else [f"the judge ended with {status}: {found}"]
        except Stuck as stuck:
            faults = [str(stuck)]
        self.figures.violations += [f"{self.name}, {history}: {fault}" for fault in faults]

    def _last_point(self) -> str:
        return lines_of(self._place / "points")[-1][0]

    def _live(self, burns_at: int) -> bool:
        """Processes until all is over, or one has died at its point."""
        self.figures.lives += 1
        if burns_at:
            (self._place / "points").unlink(missing_ok=True)
        for _ in range(ROUNDS):
            status, said = self.child(self._place, drive, self.name, burns_at)
            if not self._ended_well(status, said, burns_at):
                return True
            last = list(said)[-1]
            if len(said) == len(runs_of(SCENES[self.name])) and said[last] in ENDED:
                return False
            status, said = self.child(self._place, meddle, self.name, last, burns_at)
            if not self._ended_well(status, said, burns_at):
                return True
        raise Stuck(f"not over after {ROUNDS} rounds: {said}")

    def _ended_well(self, status: int, said: Any, burns_at: int) -> bool:
        if status == -signal.SIGKILL and burns_at:
            self.figures.kills += 1
            return False
        if status:
            raise Stuck(f"a process ended with {status}: {said}")
        return True


class Stuck(Exception):
    """A life that does not come to its end."""


async def _make_empty(place: Path) -> None:
    await open_store(place / "store.db").close()


def _copy(start: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(start, place)


# ---------------------------------------------------------------- many


def sweep(task: dict[str, Any]) -> dict[str, Any]:
    """One part of a sweep, in this process; what it counted."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="cairn-sweep-", dir=task.get("place")) as folder:
        swept = Sweep(task["scene"], Path(folder), tuple(task.get("share", (0, 1))))
        try:
            swept.square() if task.get("square") else swept.first()
        except Stuck as stuck:
            swept.figures.violations.append(f"{task['scene']}: {stuck}")
    return swept.figures.as_dict()


def warm_up() -> None:
    """Load and make all that children would have to load and make, without opening a file."""
    for name in ("cairn.store.sqlite.store", "encodings.ascii", "encodings.unicode_escape"):
        importlib.import_module(name)
    all_agents()
    gc.freeze()


def serve(job: dict[str, Any]) -> None:
    """A job of the zygote."""
    out = Path(job["result"])
    out.with_suffix(".part").write_text(json.dumps(sweep(job["sweep"])))
    out.with_suffix(".part").rename(out)


def all_parts(tasks: list[dict[str, Any]], processes: int) -> Iterator[dict[str, Any]]:
    """Every task in a process of its own, so many at once; as they come."""
    reports: dict[int, int] = {}
    left = list(reversed(tasks))
    while left or reports:
        while left and len(reports) < processes:
            reader, writer = os.pipe()
            task = left.pop()
            pid = os.fork()
            if pid == 0:
                os.write(writer, json.dumps(sweep(task)).encode())
                os._exit(0)
            os.close(writer)
            reports[pid] = reader
        # each part says one thing, at its end; a pipe holds that much, or is read while it waits
        for pid, reader in list(reports.items()):
            with os.fdopen(reader, "rb") as said:
                text = said.read()
            os.waitpid(pid, 0)
            del reports[pid]
            if not text:
                raise RuntimeError("a part of the sweep has died")
            yield json.loads(text)
            break


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--scene", choices=SCENES, action="append")
    options.add_argument("--square", action="store_true", help="crash again in the recovery")
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--place", help="where the files go; memory is as good as a disk here")
    given = options.parse_args()
    warm_up()
    begun = time.monotonic()
    total = Figures()
    print(f"{'scene':18} {'points':>7} {'pairs':>7} {'kills':>7} {'lives':>7} {'violations':>10}")
    for name in given.scene or SCENES:
        task = {"scene": name, "square": given.square, "place": given.place}
        parts = given.processes
        tasks = [{**task, "share": (part, parts)} for part in range(parts)]
        of_scene = Figures()
        for said in all_parts(tasks, parts):
            of_scene.add(Figures(**{**said, "names": Counter(said["names"])}))
        total.add(of_scene)
        print(_row(name, of_scene), flush=True)
    print(_row("all", total))
    seconds = time.monotonic() - begun
    print(
        f"{total.processes} processes, {total.missed} points not met again, {seconds:.0f} s, "
        f"{parts} at once"
    )
    print("points seen:", ", ".join(sorted(total.names)))
    for violation in total.violations[:50]:
        print("VIOLATION", violation)
    return 1 if total.violations else 0


def _row(name: str, figures: Figures) -> str:
    f = figures
    wrong = len(f.violations)
    return f"{name:18} {f.points:7} {f.pairs:7} {f.kills:7} {f.lives:7} {wrong:10}"


if __name__ == "__main__":
    sys.exit(main())
