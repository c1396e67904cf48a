"""A process that is killed while it erases leaves all of it or none, and who asks again ends it."""

import shutil
import signal
import subprocess
import sys

import pytest
from tests.erasing.kit import ANN, Garden, found, later, live, runtime, wrong

from cairn.store import open_store

ERASER = """
import asyncio, os, signal, sys
from cairn import Principal
from cairn.store import open_store
from cairn.store.sqlite import erasing, writer

path, when = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if when == "before the commit":
    erasing.Erase._note = die
elif when == "before the file is written anew":
    writer.Writer._clear_file = die
elif when == "while the file is written anew":
    clear = writer.Writer._clear_file
    def clear_and_die(self, clearing):
        self._connection.set_progress_handler(die, 50)
        clear(self, clearing)
    writer.Writer._clear_file = clear_and_die
elif when == "before the log is cut":
    writer.Writer._clear_log = die

async def main():
    store = open_store(path)
    await store.erase(Principal(id="ann", tenant="acme"), 2_000_000_000_000_000)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A store with all of a principal's words, and the words."""
    place, garden = tmp_path_factory.mktemp("planted"), Garden("ann")
    with runtime(place / "cairn.db", place / "work", garden) as rt:
        live(rt, ANN, garden)
    return place / "cairn.db", garden.words


async def asked(path):
    store = open_store(path)
    try:
        return await store.holdings(ANN)
    finally:
        await store.close()


async def erased(path):
    store = open_store(path)
    try:
        return await store.erase(ANN, 2_000_000_000_000_000)
    finally:
        await store.close()


@pytest.mark.kill
@pytest.mark.parametrize(
    ("when", "gone"),
    [
        ("before the commit", False),
        ("before the file is written anew", True),
        ("while the file is written anew", True),
        ("before the log is cut", True),
    ],
)
def test_a_killed_erasing_is_before_or_after_and_a_second_one_ends_it(
    planted, tmp_path, when, gone
):
    original, words = planted
    path = tmp_path / "cairn.db"
    shutil.copy(original, path)
    eraser = subprocess.run([sys.executable, "-c", ERASER, str(path), when], check=False)
    assert eraser.returncode == -signal.SIGKILL
    assert wrong(path) == []
    held = later(asked(path))
    assert (len(held.runs), held.facts, len(held.grants)) == ((0, 0, 0) if gone else (4, 2, 1))
    assert wrong(path) == []
    again = later(erased(path))
    assert again.cleared
    assert len(again.runs) == (0 if gone else 4)
    in_store = {place: word for place, word in words.items() if "file" not in place}
    assert found(tmp_path, in_store) == set()
    assert wrong(path) == []
