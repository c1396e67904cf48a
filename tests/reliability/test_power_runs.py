"""The power fails under whole runs: models, tools, approvals and copies, on one file.

`python -m cairn.testing.power --seeds N` is the campaign; here is its share for every day, and the
proof that it can fail: each deliberately broken variant is caught.
"""

import asyncio
import os
import re

import pytest

from cairn.core.codec import GENESIS
from cairn.store.sqlite import connection
from cairn.store.sqlite.faults import patiently
from cairn.store.sqlite.store import SqliteStore
from cairn.store.sqlite.transaction import Transaction
from cairn.store.sqlite.writer import Writer
from cairn.testing import power_life
from cairn.testing.power import Plan, Score, main, play, shows_nothing
from cairn.testing.power_disk import STORE, Disk

SEEDS = int(os.environ.get("CAIRN_POWER_SEEDS", "2"))
BRIEF = {"onward_every": 4, "copy_every": 12, "most": 20, "again": False}
LEVELS = ("full", "process")


def played(durability, *seeds, **options):
    score = Score()
    for seed in seeds:
        score = score.plus(play(seed, Plan(durability=durability, **options)))
    return score


# ---------------------------------------------------------------- promises


def test_full_durability_keeps_every_acknowledged_event_of_whole_runs():
    score = played("full", 0, **BRIEF)
    assert score.wrong == ()
    assert score.lost == 0
    assert score.pictures >= 15
    assert score.onward >= 3
    assert not shows_nothing("full", score)


def test_process_durability_keeps_a_beginning_and_what_was_synced():
    score = played("process", 1, **BRIEF)
    assert score.wrong == ()
    assert score.pictures >= 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
@pytest.mark.parametrize("durability", LEVELS)
def test_the_promises_hold_when_the_power_fails_and_fails_again(seed, durability):
    score = played(durability, seed)
    assert score.wrong == ()
    assert score.lives == 2
    assert score.lost == 0 or durability == "process"


def test_a_life_that_does_not_end_is_ended_and_told(monkeypatch):
    async def never_ends(runtime, run, left):
        await asyncio.Event().wait()

    monkeypatch.setattr(power_life, "_drive", never_ends)
    score = played("full", 0, life_s=0.2)
    assert "was not lived to its end: TimeoutError" in " ".join(score.wrong)


@pytest.mark.slow
def test_process_durability_does_lose_something_so_that_the_proof_shows_something(capsys):
    score = played("process", *range(200, 204), onward_every=0, copy_every=0)
    assert score.wrong == ()
    assert score.lost > 0
    assert not shows_nothing("process", score)
    assert shows_nothing("process", Score(pictures=9))


@pytest.mark.slow
def test_the_command_tells_its_figures_and_ends_with_their_verdict(capsys, tmp_path, monkeypatch):
    arguments = ["--seeds", "1", "--durability", "full", "--most", "10"]
    arguments += ["--command-every", "9"]
    assert main([*arguments, "--keep", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for word in ("seeds", "pictures", "acknowledged events", "events lost", "violations"):
        assert word in said
    monkeypatch.setattr(Disk, "_sync_folder", lambda self: None)
    assert main([*arguments, "--keep", str(tmp_path)]) == 1
    assert "full seed 0" in capsys.readouterr().out
    kept = list(tmp_path.iterdir())
    assert kept, "the files of what is wrong are kept"


# ---------------------------------------------------------------- broken variants


def level(name):
    """A store that is opened with another level than was asked for."""

    def broken(monkeypatch):
        prepare = connection._prepare

        def prepared(opened, settings):
            prepare(opened, settings)
            opened.execute(f"PRAGMA synchronous = {name}")

        monkeypatch.setattr(connection, "_prepare", prepared)

    broken.__name__ = f"synchronous_{name.lower()}"
    return broken


def acknowledged_before_the_commit(monkeypatch):
    def attempt(self, batch):
        patiently(self._tx.begin, self._settings.patience_s)
        outcomes = [(wish, wish.apply(self._tx), None) for wish in batch if hasattr(wish, "future")]
        self._deliver(outcomes)
        self._wrote(patiently(self._tx.commit, self._settings.patience_s))

    monkeypatch.setattr(Writer, "_attempt", attempt)


def unsynced(monkeypatch, *suffixes):
    """A disk whose sync does nothing for some files."""
    sync = Disk.sync

    def lying(self, contents, name):
        if name.removeprefix(STORE) not in suffixes:
            sync(self, contents, name)

    monkeypatch.setattr(Disk, "sync", lying)


def log_not_synced(monkeypatch):
    unsynced(monkeypatch, "-wal")


def file_not_synced_before_its_log_is_used_again(monkeypatch):
    unsynced(monkeypatch, "")


def new_names_not_synced(monkeypatch):
    monkeypatch.setattr(Disk, "_sync_folder", lambda self: None)


def index_left_behind(monkeypatch):
    reindex = Transaction.reindex

    def forgetful(self, line, index, *, cancel=False):
        steps = line.steps
        reindex(self, line, index, cancel=cancel)
        line.steps = steps

    monkeypatch.setattr(Transaction, "reindex", forgetful)


def events_committed_apart_from_their_line(monkeypatch):
    """The rows of a batch go to the file first, and its lines with the next batch."""

    def flush_lines(self):
        lines = dict(self._dirty)
        if not getattr(self, "_apart", False):
            self.connection.execute("COMMIT")
            self.connection.execute("BEGIN IMMEDIATE")
        self._dirty = lines
        flush(self)

    flush = Transaction._flush_lines
    monkeypatch.setattr(Transaction, "_flush_lines", flush_lines)


def chain_begun_anew(monkeypatch):
    extend = Transaction.extend

    def unchained(self, line, prepared):
        if line.head % 5 == 4:
            line.hash = GENESIS
        extend(self, line, prepared)

    monkeypatch.setattr(Transaction, "extend", unchained)


def tools_started_before_their_intent_is_safe(monkeypatch):
    """An append returns at once, and is written a moment later."""
    append = SqliteStore.append

    async def hasty(self, run, epoch, entries, index, **more):
        if any(entry.event.NAME == "tool.started" for entry in entries):
            writing = append(self, run, epoch, entries, index, **more)
            late.append(asyncio.ensure_future(writing))
            late[-1].add_done_callback(lambda done: done.exception())
            return
        await append(self, run, epoch, entries, index, **more)

    late = []
    monkeypatch.setattr(SqliteStore, "append", hasty)


BROKEN = [
    ("full", level("OFF"), "was safe, and is gone"),
    ("full", level("NORMAL"), "was safe, and is gone"),
    ("process", level("OFF"), "malformed|integrity_check|was safe, and is gone"),
    ("full", acknowledged_before_the_commit, "was safe, and is gone"),
    ("full", log_not_synced, "was safe, and is gone"),
    ("full", file_not_synced_before_its_log_is_used_again, "was safe, and is gone"),
    ("process", file_not_synced_before_its_log_is_used_again, "malformed|was safe, and is gone"),
    ("full", new_names_not_synced, "was safe, and is gone"),
    ("full", index_left_behind, "does not follow from its journal"),
    ("process", events_committed_apart_from_their_line, "stands after the end"),
    ("full", chain_begun_anew, "was changed"),
    ("full", tools_started_before_their_intent_is_safe, "made 2 times|happened 2 times"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("durability", "break_it", "said"), BROKEN, ids=[f"{d}-{b.__name__}" for d, b, _ in BROKEN]
)
def test_a_broken_variant_is_caught(durability, break_it, said, monkeypatch):
    break_it(monkeypatch)
    onward = 1 if "happened" in said else 0
    for seed in range(12):
        how = {"copy_every": 0, "onward_every": onward, "again": False, "life_s": 4}
        score = played(durability, seed, **how)
        if re.search(said, " ".join(score.wrong)):
            return
    raise AssertionError("nothing was found")
