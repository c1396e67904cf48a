"""The power-loss proof: `python -m cairn.testing.power --seeds N`.

Each seed drives runs with models, tools, approvals and copies on a disk that can lose power
(`power_disk`, `power_life`). After many operations, and whenever a caller was told that something
is safe, a picture is taken of what such a disk could hold. A store is opened on each picture and
must keep what its durability promises (`power_verdict`):

full      every acknowledged event is there, and runs go on with no effect the laws forbid
process   the store opens, each run holds a beginning of what was acknowledged, and at least
          what had been acknowledged when the log was last synced

One picture of each seed becomes the beginning of a second life, in which the power fails again.
A seed draws all but the order in which threads get their turn. What is wrong is printed, the
files it was found on are kept, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cairn.core.events import Entry
from cairn.core.messages import Record
from cairn.errors import CairnError
from cairn.store import open_store
from cairn.store.sqlite import connection
from cairn.testing.power_disk import STORE, Disk, Picture, lay_out
from cairn.testing.power_life import COPY, Durability, World, live
from cairn.testing.power_verdict import ALL, Look, judge

LOG_PAGES = (3, 8, 20, 60, 1_000)
"""Pages after which the log is copied back: few, so that it happens within a short life."""

EVERY = (5, 9, 17, 31)
"""Operations between two pictures."""

MOST = 40
"""Pictures of one life, at most."""

LIFE_S = 60.0
"""How long a life may last in real seconds; the usual one takes less than one."""

LEFT_S = 5.0
"""How long what a life left at work may take to end."""


class Score(Record):
    """What came of some seeds."""

    seeds: int = 0
    lives: int = 0
    pictures: int = 0
    acknowledged: int = 0
    """Events that callers had been told of, summed over the pictures."""
    events: int = 0
    """Events that callers were told of."""
    lost: int = 0
    """Of `acknowledged`, those that were gone."""
    onward: int = 0
    """Pictures from which all runs were finished."""
    copies: int = 0
    operations: int = 0
    syncs: int = 0
    wrong: tuple[str, ...] = ()

    def plus(self, other: Score) -> Score:
        """Both together."""
        return Score(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )


class Plan(Record):
    """How thoroughly a seed is played.

    Args:
        durability: Of the store.
        onward_every, copy_every, command_every: Which pictures are looked at more closely; 0
            for none.
        again: Whether one picture begins a second life.
        most: Pictures of one life, at most.
        life_s: Real seconds after which a life that goes round in circles is ended, and said to
            be wrong.
        keep: Folder for the files of pictures on which something was wrong.
    """

    durability: Durability = "full"
    onward_every: int = 3
    copy_every: int = 8
    command_every: int = 0
    again: bool = True
    most: int = MOST
    life_s: float = LIFE_S
    keep: str = ""


def play(seed: int, plan: Plan) -> Score:
    """One seed, with all its pictures judged."""
    chance = random.Random(f"power {seed} {plan.durability}")  # noqa: S311 - a seed must repeat
    with _scratch() as folder, _short_log(chance.choice(LOG_PAGES)):
        world = World(seed)
        (folder / "first").mkdir()
        score, pictures = _life(seed, folder / "first", world, plan, chance)
        if plan.again and pictures:
            picture = chance.choice(pictures)
            past = world.at(picture.marks)
            lay_out({n: c for n, c in picture.files.items() if n != COPY}, folder / "second")
            past.told = asyncio.run(_what_is_there(folder / "second" / STORE))
            past.copies = []
            more, _ = _life(seed, folder / "second", past, plan, chance)
            score = score.plus(more)
    return score.plus(Score(seeds=1))


def _life(
    seed: int, folder: Path, world: World, plan: Plan, chance: random.Random
) -> tuple[Score, list[Picture]]:
    before = len(world.told)
    disk = Disk(folder, chance, chance.choice(EVERY), world.marks)
    wrong: tuple[str, ...] = ()
    with disk.in_use():
        try:
            _run(live(folder, world, disk, plan.durability), plan.life_s)
        except (CairnError, TimeoutError) as error:
            where = f"{plan.durability} seed {seed}, {folder.name} life"
            wrong = (f"{where} was not lived to its end: {type(error).__name__}: {error}",)
    pictures = disk.pictures
    if len(pictures) > plan.most:
        pictures = sorted(chance.sample(pictures, plan.most), key=lambda picture: picture.number)
    score = Score(
        lives=1,
        events=len(world.told) - before,
        operations=disk.operations,
        syncs=disk.syncs,
        wrong=wrong,
    )
    for at, picture in enumerate(pictures):
        score = score.plus(_look_at(picture, at, seed, folder, world, plan))
    return score, pictures


def _run(life: Coroutine[Any, Any, None], most_s: float) -> None:
    """As `asyncio.run`; but a broken store's life, and what it left at work, may last only so long.

    Raises:
        TimeoutError: the life did not end.
    """
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(life, most_s))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=LEFT_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _look_at(picture: Picture, at: int, seed: int, folder: Path, world: World, plan: Plan) -> Score:
    how = Look(
        onward=_is_due(at, plan.onward_every),
        copy=_is_due(at, plan.copy_every) or (plan.copy_every > 0 and picture.why == "copied"),
        command=_is_due(at, plan.command_every),
    )
    place = folder.parent / f"{folder.name}-{picture.number}"
    found = asyncio.run(judge(picture, world, place, plan.durability, how))
    where = f"{plan.durability} seed {seed}, {folder.name} life, picture {picture.number}"
    if found.wrong and plan.keep:
        name = f"{plan.durability}-{seed}-{place.name}"
        shutil.rmtree(Path(plan.keep) / name, ignore_errors=True)
        lay_out(picture.files, Path(plan.keep) / name)
    shutil.rmtree(place)
    return Score(
        pictures=1,
        acknowledged=found.acknowledged,
        lost=found.lost,
        onward=int(how.onward),
        copies=found.copies,
        wrong=tuple(f"{where} ({picture.mode}, {picture.why}): {line}" for line in found.wrong),
    )


def _is_due(at: int, every: int) -> bool:
    return every > 0 and at % every == every - 1


async def _what_is_there(path: Path) -> list[tuple[str, Entry]]:
    """What a second life begins with counts as told."""
    store = open_store(path)
    try:
        runs = [info.run for info in await store.runs(ALL)]
        return [(run, entry) for run in runs for entry in await store.read(run)]
    finally:
        await store.close()


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder that needs no real disk: which bytes are safe is decided by the books."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder made in it has a name nobody can guess
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="cairn-power-", dir=place) as name:
        yield Path(name).resolve()


@contextmanager
def _short_log(pages: int) -> Iterator[None]:
    usual = connection.CHECKPOINT_PAGES
    connection.CHECKPOINT_PAGES = pages
    try:
        yield
    finally:
        connection.CHECKPOINT_PAGES = usual


# ---------------------------------------------------------------- the command


def campaign(seeds: Sequence[int], plan: Plan, jobs: int = 1) -> Score:
    """Many seeds, in as many processes as wanted."""
    score = Score()
    if jobs <= 1:
        for seed in seeds:
            score = score.plus(play(seed, plan))
        return score
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for part in pool.map(play, seeds, [plan] * len(seeds)):
            score = score.plus(part)
    return score


def shows_nothing(durability: Durability, score: Score) -> bool:
    """Whether nothing could have been found: a disk that loses nothing proves nothing."""
    return not score.pictures or (durability == "process" and not score.lost)


def _report(durability: Durability, score: Score, seconds: float) -> None:
    lines = (
        f"durability={durability}",
        f"  seeds                {score.seeds:>9,}   ({score.lives:,} lives)",
        f"  file operations      {score.operations:>9,}   ({score.syncs:,} syncs)",
        f"  acknowledged events  {score.events:>9,}",
        f"  pictures             {score.pictures:>9,}   ({score.onward:,} finished to the end)",
        f"  copies opened        {score.copies:>9,}",
        f"  events looked for    {score.acknowledged:>9,}",
        f"  events lost          {score.lost:>9,}",
        f"  violations           {len(score.wrong):>9,}",
        f"  seconds              {seconds:>9,.1f}",
    )
    sys.stdout.write("\n".join([*lines, *score.wrong[:20]]) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m cairn.testing.power", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=20, help="how many; 20 by default")
    parser.add_argument("--first", type=int, default=0, help="the first of them; 0 by default")
    parser.add_argument("--durability", choices=["full", "process", "both"], default="both")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 1 by default")
    parser.add_argument(
        "--most", type=int, default=MOST, help="pictures of one life; 40 by default"
    )
    parser.add_argument("--keep", default="", help="folder for the files of what is wrong")
    parser.add_argument("--command-every", type=int, default=0, help="ask `cairn verify` too")
    given = parser.parse_args(arguments)
    levels: tuple[Durability, ...] = ("full", "process")
    failed = False
    for durability in levels:
        if given.durability not in {durability, "both"}:
            continue
        plan = Plan(
            durability=durability,
            most=given.most,
            keep=given.keep,
            command_every=given.command_every,
        )
        start = time.monotonic()
        score = campaign(range(given.first, given.first + given.seeds), plan, given.jobs)
        _report(durability, score, time.monotonic() - start)
        if shows_nothing(durability, score):
            sys.stdout.write("  nothing was lost, so nothing was shown: play more seeds\n")
            failed = True
        failed = failed or bool(score.wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
