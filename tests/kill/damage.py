"""Damage done to copies of a store: what is changed is found and named, the rest stays readable."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kill.outside import lines_of

from cairn import CairnError
from cairn.core.codec import Row
from cairn.errors import CorruptJournal
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore

NAMED = 20
ANYWHERE = 40
SAMPLE = 12


async def damage(place: Path) -> dict[str, Any]:
    """Flip bytes in copies of a store that nobody has open; what came of it."""
    chance = random.Random(0)
    runs = [words[0] for words in lines_of(place / "tasks")]
    chosen = chance.sample(runs, min(SAMPLE, len(runs)))
    store = open_at(place / "store.db")
    whole = {run: await store.rows(run) for run in chosen}
    await store.close()
    told: dict[str, Any] = {"named": 0, "by_command": 0, "anywhere": 0, "noticed": 0, "found": []}
    for n in range(NAMED):
        await _named(place, whole, chance, told, asks=n < 2)
    for _ in range(ANYWHERE):
        await _anywhere(place, whole, chance, told)
    return told


def open_at(path: Path) -> SqliteStore:
    return SqliteStore(Settings(path=os.path.realpath(path)))


def copied(place: Path) -> Path:
    """A fresh copy of the file; its log was taken in when the last process closed it."""
    copy = place / "copy.db"
    for old in place.glob("copy.db*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    shutil.copy(place / "store.db", copy)
    return copy


def flip(path: Path, at: int, bits: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bits]))


async def _named(
    place: Path,
    whole: dict[str, list[Row]],
    chance: random.Random,
    told: dict[str, Any],
    asks: bool,
) -> None:
    """One byte of one event: `verify` names it, and no other run is touched."""
    copy = copied(place)
    run = chance.choice(sorted(whole))
    row = chance.choice(whole[run])
    bits = 1 << chance.randrange(7)
    for at in _positions(copy.read_bytes(), row, chance):
        flip(copy, at, bits)
    what = f"{run}: event {row.seq}"
    store = open_at(copy)
    try:
        await store.verify(run)
        told["found"].append(f"{what} was changed and verify saw nothing")
    except CorruptJournal as error:
        told["named"] += 1
        if what not in str(error):
            told["found"].append(f"{what} was changed and verify said {error}")
    for other in sorted(whole):
        if other != run and await store.rows(other) != whole[other]:
            told["found"].append(f"{what} was changed and {other} reads differently")
    await store.close()
    if asks:
        done = verify_by_command(copy)
        told["by_command"] += 1
        if done.returncode != 1 or f"event {row.seq}" not in done.stdout + done.stderr:
            told["found"].append(f"{what} was changed and cairn verify said {done}")


def verify_by_command(path: Path) -> subprocess.CompletedProcess[str]:
    """What the command line says of a file."""
    command = [sys.executable, "-m", "cairn", "verify", "--store", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _positions(content: bytes, row: Row, chance: random.Random) -> list[int]:
    """Where one byte of this event lies, in what is read and in what is left of old pages.

    The row's random salt finds it; its data stand right before, unless they are kept elsewhere.
    """
    offset = chance.randrange(len(row.salt))
    data = row.data or b""
    at = content.find(row.salt)
    if at >= 0 and data and content[at - len(data) : at] == data:
        offset = -1 - chance.randrange(len(data))
    found = []
    while at >= 0:
        found.append(at + offset)
        at = content.find(row.salt, at + 1)
    return found


async def _anywhere(
    place: Path, whole: dict[str, list[Row]], chance: random.Random, told: dict[str, Any]
) -> None:
    """Some bytes anywhere: each run reads as before, or a typed error says that it does not."""
    copy = copied(place)
    size = copy.stat().st_size
    at = chance.randrange(size)
    for _ in range(8):
        flip(copy, min(at + chance.randrange(64), size - 1), 1 << chance.randrange(8))
    told["anywhere"] += 1
    noticed = False
    try:
        store = open_at(copy)
    except CairnError:
        told["noticed"] += 1
        return
    except Exception as error:  # what is no typed error is what is looked for here
        told["found"].append(f"damage at {at}: opening raised {error!r}")
        return
    for run, rows in whole.items():
        try:
            await store.verify(run)
            await store.read(run)
            if await store.rows(run) != rows:
                told["found"].append(f"damage at {at}: {run} reads differently and verifies")
        except CairnError:
            noticed = True
        except Exception as error:  # what is no typed error is what is looked for here
            told["found"].append(f"damage at {at}: {run} raised {error!r}")
    told["noticed"] += noticed
    await store.close()
