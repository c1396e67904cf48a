"""What must be true of a store that is opened on what a disk holds after the power failed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import apsw

from cairn.core.events import Entry
from cairn.core.evolve import fold
from cairn.core.index import index_of
from cairn.core.messages import Record
from cairn.core.state import RunState
from cairn.ports import RunFilter, RunInfo
from cairn.store import open_store, restore
from cairn.testing.power_disk import STORE, Picture, lay_out
from cairn.testing.power_life import (
    COPY,
    ONCE,
    OVER,
    AttentiveStore,
    Durability,
    World,
    go_on,
    open_attentive,
)

ALL = RunFilter(limit=1_000)


class Found(Record, gc=True):
    """What one picture showed.

    Args:
        wrong: Promises that were broken, in words.
        acknowledged, lost: Events that callers were told of, and how many of those are gone.
        copies: Copies that were opened.
    """

    wrong: tuple[str, ...] = ()
    acknowledged: int = 0
    lost: int = 0
    copies: int = 0


class Look(Record):
    """How closely a picture is looked at, beside opening it and reading every journal.

    Args:
        onward: Let a fresh runtime finish every run.
        copy: Put the copy that was finished before back elsewhere and read that, and one of
            what was found too.
        command: Have `cairn verify` look as well.
    """

    onward: bool = False
    copy: bool = False
    command: bool = False


async def judge(
    picture: Picture, world: World, folder: Path, durability: Durability, how: Look
) -> Found:
    """Lay a picture out in a new folder, open a store on it and check what was promised."""
    lay_out(picture.files, folder)
    past = world.at(picture.marks)
    wrong: list[str] = []
    copies = lost = 0
    try:
        if how.copy:
            copies += await _judge_copy(folder, past, picture, wrong)
        store = open_attentive(folder, durability, past)
        try:
            journals = await _journals(store, wrong)
            floor = past.told if durability == "full" else past.told[: picture.floor[2]]
            lost = _compare(journals, past.told, floor, wrong)
            _look_into(folder, wrong)
            if how.copy:
                copies += await _copy_and_restore(store, folder, journals, wrong)
            if how.onward:
                await _finish(store, past, durability, wrong)
        finally:
            await store.close()
        if how.command:
            _command(folder, wrong)
    except Exception as error:  # whatever is raised over a picture is a finding
        wrong.append(f"{type(error).__name__}: {error}")
    return Found(wrong=tuple(wrong), acknowledged=len(past.told), lost=lost, copies=copies)


# ---------------------------------------------------------------- journals


async def _journals(store: AttentiveStore, wrong: list[str]) -> dict[str, list[Entry]]:
    """Every journal, its chain proven, its index rows as they follow from it."""
    found = {}
    rows = {pending.id: pending for pending in await store.pending(1_000)}
    for info in await store.runs(ALL):
        entries = await store.read(info.run)
        if await store.verify(info.run) != len(entries):
            wrong.append(f"{info.run}: verified another number of events than can be read")
        if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
            wrong.append(f"{info.run}: its journal has a gap")
        state = fold(RunState(run=info.run, alone=True), entries)
        index = index_of(state)
        wrong.extend(
            f"{pending.id} waits, and the inbox does not say so"
            for pending in index.pending
            if rows.pop(pending.id, None) != pending
        )
        if not _fits(info, state):
            wrong.append(f"{info.run}: its line does not follow from its journal: {info}, {index}")
        found[info.run] = entries
    wrong.extend(f"{id_} stands in the inbox, and waits for nothing" for id_ in rows)
    return found


def _fits(info: RunInfo, state: RunState) -> bool:
    index = index_of(state)
    shown = (info.status, info.wake_at, info.waits, info.steps, info.tokens, info.micro_usd)
    follows = (index.status, index.wake_at, index.waits, index.steps, index.tokens)
    return shown == (*follows, index.micro_usd) and info.head == state.seq


def _compare(
    journals: dict[str, list[Entry]],
    told: Sequence[tuple[str, Entry]],
    floor: Sequence[tuple[str, Entry]],
    wrong: list[str],
) -> int:
    """How much of what was told is gone; what is there must be as it was told."""
    lost = 0
    for run, entry in told:
        entries = journals.get(run, [])
        if entry.seq > len(entries):
            lost += 1
        elif entries[entry.seq - 1] != entry:
            wrong.append(f"{run}: event {entry.seq} is another than was acknowledged")
    for run, entry in floor:
        if entry.seq > len(journals.get(run, [])):
            wrong.append(f"{run}: event {entry.seq} was safe, and is gone")
    return lost


def _look_into(folder: Path, wrong: list[str]) -> None:
    """What the library itself finds wrong with the file."""
    connection = apsw.Connection(str(folder / STORE), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for question in ("PRAGMA integrity_check", "PRAGMA foreign_key_check"):
            said = [row for row in connection.execute(question) if row != ("ok",)]
            if said:
                wrong.append(f"{question}: {said}")
    finally:
        connection.close()


def _command(folder: Path, wrong: list[str]) -> None:
    command = [sys.executable, "-m", "cairn", "verify", "--store", str(folder / STORE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        wrong.append(f"cairn verify: {done.stdout}{done.stderr}")


# ---------------------------------------------------------------- copies


async def _judge_copy(folder: Path, past: World, picture: Picture, wrong: list[str]) -> int:
    """A copy that was finished is whole, and holds what had been told when it was begun."""
    if not past.copies:
        return 0
    if COPY not in picture.files:
        wrong.append("a copy that was finished is gone")
        return 0
    await _open_copy(folder / COPY, folder / "restored.db", past.told[: past.copies[0]], wrong)
    return 1


async def _copy_and_restore(
    store: AttentiveStore, folder: Path, journals: dict[str, list[Entry]], wrong: list[str]
) -> int:
    """A copy made of what was found holds the same."""
    await store.backup(str(folder / "again.db"))
    told = [(run, entry) for run, entries in journals.items() for entry in entries]
    await _open_copy(folder / "again.db", folder / "again-restored.db", told, wrong)
    return 1


async def _open_copy(
    copy: Path, target: Path, told: Sequence[tuple[str, Entry]], wrong: list[str]
) -> None:
    restore(copy, target)
    store = open_store(target)
    try:
        journals = {info.run: await store.read(info.run) for info in await store.runs(ALL)}
        for run in journals:
            await store.verify(run)
    finally:
        await store.close()
    said: list[str] = []
    _compare(journals, told, told, said)
    wrong.extend(f"{copy.name}: {line}" for line in said)


# ---------------------------------------------------------------- going on


async def _finish(
    store: AttentiveStore, past: World, durability: Durability, wrong: list[str]
) -> None:
    """A fresh runtime finishes every run, and no effect happens that the laws forbid."""
    unfinished = await go_on(store, past)
    wrong.extend(f"{run} cannot be finished" for run in unfinished)
    for info in await store.runs(ALL):
        await store.verify(info.run)
        fold(RunState(run=info.run, alone=True), await store.read(info.run))
        if info.status not in OVER and info.run not in unfinished:
            wrong.append(f"{info.run} is {info.status} after its end")
    wrong.extend(f"{run}: its model was sent malformed messages" for run in past.malformed)
    keys: dict[tuple[str, str], set[str]] = {}
    for run, call, _, key in past.attempts:
        keys.setdefault((run, call), set()).add(key)
    wrong.extend(f"{where} had several keys" for where, used in keys.items() if len(used) > 1)
    if durability != "full":
        return  # what was forgotten may be done again: that is what this level does not promise
    tries = Counter(attempt[:3] for attempt in past.attempts)
    wrong.extend(f"attempt {which} was made {n} times" for which, n in tries.items() if n > 1)
    for (run, call, kind), times in Counter(past.effects).items():
        if kind in ONCE and times > 1:
            wrong.append(f"{run}/{call}: {kind} happened {times} times")
