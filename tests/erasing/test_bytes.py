"""After an erasing no byte of what a principal left is in any file, and others' are untouched."""

from hashlib import sha256

import apsw
import pytest
from tests.erasing.kit import ANN, BOB, Garden, found, live, rows, runtime, wrong

from cairn.store import inspect_store

OTHERS = (
    "SELECT e.* FROM event AS e JOIN run AS r ON r.no = e.id >> 32 WHERE r.principal = 'bob' "
    "ORDER BY e.id"
)
LINES = "SELECT * FROM run WHERE principal = 'bob' ORDER BY no"
FACTS = "SELECT * FROM fact WHERE principal = 'bob' ORDER BY no"
TERMS = (
    "SELECT t.* FROM fact_term AS t JOIN fact AS f ON f.no = t.fact WHERE f.principal = 'bob' "
    "ORDER BY t.fact, t.term"
)
TABLES = (OTHERS, LINES, FACTS, TERMS)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def test_no_byte_is_left_of_what_was_planted_in_any_place_and_others_keep_all_of_theirs(place):
    path, folder = place / "cairn.db", place / "work"
    ann, bob = Garden("ann"), Garden("bob")
    with runtime(path, folder, ann) as rt:
        runs = live(rt, ANN, ann)
        for n in range(30):  # enough for pages to be split, which leaves copies in them
            runs.append(rt.run("shop", ann.plant(f"more{n}"), id=f"ann-more-{n}", principal=ANN).id)
    with runtime(path, folder, bob) as rt:
        live(rt, BOB, bob)
    assert found(place, ann.words) == set(ann.words), "all of it must be there before"
    assert len(ann.words) >= 54
    before = [rows(path, query) for query in TABLES]
    with runtime(path, folder, ann) as rt:
        erased = rt.erase(ANN, by="dpo", reason="asked to")
        assert found(place, ann.words) == set(), "while the store is open, its log included"
    assert found(place, ann.words) == set()
    assert found(place, bob.words) == set(bob.words)
    assert [rows(path, query) for query in TABLES] == before
    assert sorted(erased.runs) == sorted(runs)
    assert (erased.facts, erased.grants, erased.sessions, erased.cleared) == (2, 1, 2, True)
    assert wrong(path) == []


def test_the_chain_of_each_erased_run_verifies_and_is_told_to_be_erased(place):
    path, ann = place / "cairn.db", Garden("ann")
    with runtime(path, place / "work", ann) as rt:
        runs = live(rt, ANN, ann)
        rt.erase(ANN)
    with inspect_store(path) as look:
        for run in runs:
            inspection = look.inspect(run)
            assert (inspection.findings, inspection.erased) == ((), inspection.events)
        store = look.inspect("store")
        assert store.findings == ()
        assert store.erased > 0


def test_a_fact_of_the_store_that_loses_its_data_without_a_record_is_told_apart(place):
    path, ann = place / "cairn.db", Garden("ann")
    with runtime(path, place / "work", ann) as rt:
        live(rt, ANN, ann)
        rt.grant("pay", principal=BOB)
        rt.erase(ANN)
    connection = apsw.Connection(str(path))
    [(id_, salt, data)] = connection.execute(
        "SELECT id, salt, data FROM event WHERE type = 210 AND data IS NOT NULL"
    ).fetchall()
    connection.execute(
        "UPDATE event SET data = NULL, salt = ? WHERE id = ?", (sha256(salt + data).digest(), id_)
    )
    connection.close()
    with inspect_store(path) as look:
        (finding,) = look.inspect("store").findings
    assert (finding.seq, finding.kind) == (id_, "unerased")
