"""A store is looked at without being changed: read-only, copied, in use, cut off, or of old."""

import asyncio
import shutil
import subprocess
import sys

import pytest
from tests.audit.conftest import runtime, sql
from tests.store.first_version import AS_FIRST

from cairn import call
from cairn.errors import ConfigError, SchemaTooNew, StoreError, UnsupportedStore
from cairn.store import inspect_store, open_store

ALL = ["stopped", "again", "denied", "granted", "store"]


def looked(path):
    """What is wrong with all journals of a store, and what stands beside it afterwards."""
    with inspect_store(path) as look:
        found = [str(f) for run in look.journals() for f in look.inspect(run).findings]
        found += [str(f) for f in look.counters(1_900_000_000_000_000)]
    return found


def test_nothing_is_made_or_changed_by_looking(path):
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(path.parent.iterdir()))
    with inspect_store(path) as look:
        assert look.journals() == ALL
    assert looked(path) == []
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(path.parent.iterdir())) == before


def test_a_file_and_a_folder_that_may_only_be_read_can_be_looked_at(path):
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        assert looked(path) == []
        with inspect_store(f"sqlite:{path}") as look:
            assert [mark.run for mark in look.heads()] == ALL
    finally:
        path.parent.chmod(0o700)


def test_a_copy_made_by_backup_can_be_looked_at(path, tmp_path):
    async def copy():
        store = open_store(path)
        await store.backup(str(tmp_path / "copy.db"))
        await store.close()

    asyncio.run(copy())
    assert looked(tmp_path / "copy.db") == []


def test_a_store_that_others_write_to_is_looked_at_as_it_is(path):
    with runtime(path, [[call("look", what="x")], "done"]) as rt:
        with inspect_store(path) as look:
            for n in range(5):
                rt.run("shop", "go", id=f"r{n}", principal=f"p{n}")
                assert look.inspect(f"r{n}").findings == ()
                assert len(look.journals()) == 6 + n
        assert looked(path) == []


def test_who_looks_at_a_store_that_nobody_has_open_sees_what_is_written_meanwhile(path):
    with inspect_store(path) as look:
        assert len(look.journals()) == 5
        with runtime(path, ["done"]) as rt:
            rt.run("shop", "go", id="new", principal="new")
            assert look.journals()[0] == "new"
            assert look.inspect("new").findings == ()
        assert look.inspect("new").findings == ()


def test_a_store_whose_process_was_killed_is_looked_at_with_its_log(path):
    program = (
        "import os, sys; from tests.audit.conftest import runtime; from pathlib import Path\n"
        "rt = runtime(Path(sys.argv[1]), ['done'])\n"
        "rt.run('shop', 'go', id='last', principal='last')\n"
        "os._exit(9)"
    )
    found = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert found.returncode == 9
    assert (path.parent / "cairn.db-wal").stat().st_size > 0
    with inspect_store(path) as look:
        assert look.journals()[0] == "last"
    assert looked(path) == []
    (path.parent / "cairn.db-wal").unlink()
    (path.parent / "cairn.db-shm").unlink(missing_ok=True)
    with inspect_store(path) as look:
        assert look.journals()[0] in {"last", "stopped"}


def test_a_file_of_the_first_version_can_be_looked_at_and_stays_as_it_is(path):
    sql(path, *AS_FIRST)
    before = path.read_bytes()
    assert looked(path) == []
    assert path.read_bytes() == before


def test_what_is_no_store_is_refused(path, tmp_path):
    with pytest.raises(ConfigError, match="there is no store"):
        inspect_store(tmp_path / "nowhere.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(UnsupportedStore):
        inspect_store(tmp_path / "empty.db")
    (tmp_path / "text.db").write_text("no database\n" * 100)
    with pytest.raises(UnsupportedStore):
        inspect_store(tmp_path / "text.db")
    sql(path, "PRAGMA user_version = 99")
    with pytest.raises(SchemaTooNew):
        inspect_store(path)


def test_a_file_that_is_damaged_beneath_its_records_is_reported_not_crashed_on(path):
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        if data[page * 4096] == 13:  # a leaf of a table
            data[page * 4096 + 3 : page * 4096 + 5] = b"\xff\xff"
    path.write_bytes(bytes(data))
    try:
        found = looked(path)
    except StoreError as error:
        found = [str(error)]
    assert found


# ---------------------------------------------------------------- hashes kept elsewhere


@pytest.fixture
def heads(path, cairn, tmp_path):
    """A store whose heads were exported, and the file they are in."""
    assert cairn("export", "--heads", "-o", "heads.jsonl").out == "wrote 5 heads to heads.jsonl\n"
    return "heads.jsonl"


CUT = (
    "DELETE FROM event WHERE id > (SELECT (no << 32) + 9 FROM run WHERE id = 'granted') "
    "AND id <= (SELECT (no << 32) + 99 FROM run WHERE id = 'granted')"
)


def cut_tail(path):
    """Take the last events away and put the line right, as somebody would who knows how."""
    sql(
        path,
        CUT,
        "UPDATE run SET head = 9, counted = 9, hash = (SELECT hash FROM event WHERE id = "
        "(run.no << 32) + 9), status = 'running', due = 0, steps = 1, tokens = 100, "
        "micro_usd = 100, updated_at = (SELECT at FROM event WHERE id = (run.no << 32) + 9) "
        "WHERE id = 'granted'",
    )


def test_an_end_that_was_cut_off_shows_only_against_exported_heads(path, cairn, heads):
    cut_tail(path)
    said = cairn("verify", "granted")
    assert (said.code, said.err) == (0, "")
    said = cairn("verify", "granted", "--heads", heads)
    assert said.code == 1
    assert said.err.splitlines() == [
        "cairn: granted: it ends at event 9; the exported one has 12: its end was cut off",
        "cairn: 1 of 1 journals are not as they were written",
    ]


def test_a_run_that_is_gone_shows_only_against_exported_heads(path, cairn, heads):
    sql(path, "DELETE FROM run WHERE id = 'stopped'", "DELETE FROM event WHERE id >> 32 = 4")
    said = cairn("verify", "--heads", heads)
    assert said.code == 1
    assert "cairn: stopped: it is gone; 9 events of it were exported" in said.err


def test_what_was_removed_by_retention_and_what_has_gone_on_is_no_loss(path, cairn, heads):
    with runtime(path, ["done"]) as rt:
        rt.drive("again")
        rt.run("shop", "go", id="later", principal="later")

    async def prune():
        store = open_store(path)
        removed = await store.prune(4_000_000_000_000_000)
        await store.close()
        return removed

    assert "stopped" in asyncio.run(prune())
    said = cairn("verify", "--heads", heads)
    assert (said.code, said.err) == (0, "")
    sql(
        path,
        "UPDATE event SET data = CAST(replace(CAST(data AS TEXT), 'stopped', 'stoppex') AS BLOB) "
        "WHERE type = 200 AND CAST(data AS TEXT) LIKE '%stopped%'",
    )
    assert cairn("verify", "--heads", heads).code == 1


def test_exports_of_a_run_and_of_an_audit_can_be_compared_too(path, cairn):
    for command in (("export", "again"), ("audit", "--json")):
        (path.parent / "kept.jsonl").write_text(cairn(*command).out)
        said = cairn("verify", "--heads", "kept.jsonl")
        assert said.code == 0
        lines = said.out.split(", ")[2]
        assert lines.endswith("exported hashes\n")
        sql(path, "UPDATE event SET hash = randomblob(32) WHERE (id & 4294967295) = 4")
        assert cairn("verify", "--heads", "kept.jsonl").code == 1
        shutil.copy(path.parent / "kept.jsonl", path.parent / "other.jsonl")
        sql(path, "DELETE FROM event")
        assert cairn("verify", "--heads", "other.jsonl").code == 1
        break


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("no json\n", "line 1 of kept.jsonl is no exported hash"),
        ('{"run":"a","seq":1,"hash":"00"}\n{"run":"a"}\n', "line 2 of kept.jsonl"),
        ('{"run":"a","seq":"1","hash":"00"}\n', "line 1 of kept.jsonl"),
    ],
)
def test_a_file_that_holds_no_hashes_is_refused_and_not_taken_for_agreement(
    path, cairn, text, said
):
    (path.parent / "kept.jsonl").write_text(text)
    found = cairn("verify", "--heads", "kept.jsonl")
    assert found.code == 2
    assert said in found.err


def test_a_file_of_heads_that_is_not_there_is_usage(path, cairn):
    assert cairn("verify", "--heads", "nowhere").code == 2
    assert cairn("export").code == 2
    assert cairn("export", "granted", "--heads").code == 2


# ---------------------------------------------------------------- the command


def test_verify_takes_several_runs_and_names_each_that_is_wrong(path, cairn):
    assert cairn("verify", "granted", "denied").out == "intact: 2 journals, 22 events\n"
    assert cairn("verify", "granted", "nobody").code == 2
    sql(path, "UPDATE event SET at = at + 1 WHERE id & 4294967295 = 3 AND id >> 32 <= 2")
    said = cairn("verify")
    assert said.code == 1
    changed = "event 3 was changed: its time, step, actor, type, salt or data"
    assert said.err.splitlines() == [
        f"cairn: again: in what it shares, denied: {changed}",
        f"cairn: denied: {changed}",
        f"cairn: granted: {changed}",
        "cairn: 3 of 5 journals are not as they were written",
    ]


def test_verify_says_the_same_as_json(path, cairn):
    sql(path, "DELETE FROM event WHERE id & 4294967295 = 8 AND id >> 32 = 1")
    said = cairn("verify", "--json")
    assert said.code == 1
    found = {each["run"]: each for each in said.objects}
    assert found["granted"] == {
        "ok": False,
        "run": "granted",
        "events": 12,
        "erased": 0,
        "removed": 0,
        "findings": [{"seq": 8, "kind": "missing", "text": "is missing"}],
    }
    assert found["denied"]["ok"]


def test_the_store_in_memory_of_an_application_has_no_file_to_look_at(cairn):
    said = cairn("verify", "--store", ":memory:")
    assert said.code == 2
    assert "has no file" in said.err


def test_the_chain_of_the_stores_own_journal_is_looked_at(path, cairn):
    sql(path, "UPDATE event SET data = CAST(CAST(data AS TEXT) || ' ' AS BLOB) WHERE type = 220")
    said = cairn("verify")
    assert said.code == 1
    assert "cairn: store: event 1 was changed" in said.err
