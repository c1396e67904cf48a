"""Whatever is changed, removed or put elsewhere in a journal is found, and its place is named."""

import asyncio
import enum
import typing
from hashlib import sha256

import apsw
import msgspec
import pytest
from tests.audit.conftest import runtime, sql

from cairn import call
from cairn.core import events as ev
from cairn.core.codec import GENESIS, encode, seal
from cairn.core.events import EVENTS, Entry
from cairn.errors import CorruptJournal
from cairn.store import inspect_store, open_store
from cairn.store.sqlite import schema

START = 1_700_000_000_000_000


def sample(kind):
    """A value of a type, as small as it can be, with every field of a record filled."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is msgspec.Raw:
        return msgspec.Raw(b'"x"')
    if origin is typing.Literal:
        return arguments[-1]
    if origin is tuple:
        return tuple(sample(part) for part in arguments if part is not ...)
    if origin is dict:
        return {sample(arguments[0]): sample(arguments[1])}
    if arguments and origin is not type:
        return sample(next(part for part in arguments if part is not type(None)))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return record(kind)
    simple = {str: "x", int: 7, bool: True, bytes: b"x", float: 0.5, frozenset: frozenset()}
    return simple.get(kind, "x")


def record(kind):
    """An event with every field filled; of the records in it only what they cannot do without."""
    hints = typing.get_type_hints(kind)
    whole = issubclass(kind, ev.Event)
    fields = [f.name for f in msgspec.structs.fields(kind) if whole or f.required]
    return kind(**{name: sample(hints[name]) for name in fields})


EVERY = sorted(EVENTS.values(), key=lambda kind: kind.TYPE)


def journal(run, kinds):
    """Rows of one event of each kind, chained; what they tell together makes no sense."""
    rows, previous = [], GENESIS
    for seq, kind in enumerate(kinds, 1):
        entry = Entry(seq=seq, at=START + seq, event=record(kind), step=seq % 3, actor=f"who{seq}")
        salt = sha256(f"{run} {seq}".encode()).digest()[:16]
        rows.append(seal(run, entry, salt, previous))
        previous = rows[-1].hash
    return rows


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """A file with the runs `a` and `b`, which hold one event of every kind there is."""
    path = tmp_path_factory.mktemp("kinds") / "cairn.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF")
    schema.migrate(connection, str(path))
    for number, run in enumerate(("a", "b"), 1):
        rows = journal(run, EVERY)
        connection.execute(
            "INSERT INTO run (no, id, head, counted, hash, status, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?, 'running', 0, 0)",
            (number, run, len(rows), len(rows), rows[-1].hash),
        )
        connection.executemany(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",
            [
                ((number << 32) + r.seq, r.at, r.step, r.actor, r.type, r.v, r.data, r.salt, r.hash)
                for r in rows
            ],
        )
    yield path, connection
    connection.close()


def place(seq, number=1):
    return (number << 32) + seq


def chain(path, run="a"):
    """The first thing that is wrong with the chain of a run; what its events make is left out."""
    with inspect_store(path) as look:
        found = [f for f in look.inspect(run).findings if f.kind != "row"]
    assert len(found) <= 1
    return found[0] if found else None


def rows_of(connection):
    return connection.execute("SELECT * FROM event ORDER BY id").fetchall()


@pytest.fixture
def restored(kinds):
    path, connection = kinds
    lines = connection.execute("SELECT * FROM run ORDER BY no").fetchall()
    before = rows_of(connection)
    yield path, connection
    connection.execute("DELETE FROM event; DELETE FROM run WHERE no > 0")
    marks = ", ".join("?" * len(lines[0]))
    connection.executemany(f"INSERT OR REPLACE INTO run VALUES ({marks})", lines)
    connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", before)


def test_a_journal_of_every_kind_of_event_is_intact_as_it_was_written(kinds):
    path, _ = kinds
    assert chain(path, "a") is None
    assert chain(path, "b") is None


HEADER = {
    "at": "at + 1",
    "step": "step + 1",
    "actor": "actor || 'x'",
    "type": "type + 1000",
    "v": "v + 1",
    "salt": "randomblob(16)",
    "hash": "randomblob(32)",
    "data": "CAST(data AS TEXT) || ' '",
}


@pytest.mark.parametrize("field", HEADER)
def test_a_change_of_any_column_of_any_kind_of_event_is_named(restored, field):
    path, connection = restored
    new = f"CAST({HEADER[field]} AS BLOB)" if field == "data" else HEADER[field]
    for seq, kind in enumerate(EVERY, 1):
        old = connection.execute("SELECT * FROM event WHERE id = ?", (place(seq),)).fetchall()
        connection.execute(f"UPDATE event SET {field} = {new} WHERE id = ?", (place(seq),))
        found = chain(path)
        assert found is not None, f"{field} of {kind.NAME}"
        assert (found.seq, found.kind) == (seq, "changed"), f"{field} of {kind.NAME}: {found}"
        if field == "hash" and seq < len(EVERY):
            assert found.text == "was changed: only its hash; what it says is as it was written"
        connection.execute("DELETE FROM event WHERE id = ?", (place(seq),))
        connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", old)
    assert chain(path) is None


WRITE = "UPDATE event SET data = ? WHERE id = ?"


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.NAME)
def test_a_change_of_any_field_of_an_event_is_named(restored, kind):
    path, connection = restored
    seq = EVERY.index(kind) + 1
    data = encode(record(kind))
    fields = msgspec.json.decode(data)
    assert set(fields) <= set(kind.__struct_fields__)
    for name in fields or {"": 0}:
        changed = {**fields, (name or "new"): "changed"}
        connection.execute(WRITE, (msgspec.json.encode(changed), place(seq)))
        found = chain(path)
        assert (found.seq, found.kind) == (seq, "changed"), name
    connection.execute(WRITE, (data, place(seq)))
    assert chain(path) is None


MIDDLE, LAST = len(EVERY) // 2, len(EVERY)


@pytest.mark.parametrize("seq", [1, 2, MIDDLE, LAST])
def test_a_record_that_was_removed_is_missed(restored, seq):
    path, connection = restored
    connection.execute("DELETE FROM event WHERE id = ?", (place(seq),))
    found = chain(path)
    assert (found.seq, found.kind) == (seq, "missing")
    assert str(found) == f"a: event {seq} is missing"


def test_a_tail_that_was_removed_without_its_line_is_missed_and_one_too_many_is_seen(restored):
    path, connection = restored
    connection.execute("UPDATE run SET head = ? WHERE no = 1", (LAST - 2,))
    found = chain(path)
    assert (found.seq, found.kind) == (LAST - 1, "extra")
    connection.execute("DELETE FROM event WHERE id > ? AND id < ?", (place(LAST - 2), place(1, 2)))
    with inspect_store(path) as look:
        [wrong] = look.inspect("a").findings
    assert str(wrong) == f"a: event {LAST - 2} is not the one that the run table names"


def swap(connection, one, other):
    for since, to in ((one, 0), (other, one), (0, other)):
        connection.execute("UPDATE event SET id = ? WHERE id = ?", (to, since))


@pytest.mark.parametrize(
    ("one", "other"), [(1, 2), (2, 1), (3, 9), (9, 3), (LAST - 1, LAST), (1, LAST)]
)
def test_records_that_changed_places_are_named_with_where_they_belong(restored, one, other):
    path, connection = restored
    swap(connection, place(one), place(other))
    found = chain(path)
    first, second = sorted((one, other))
    assert (found.seq, found.kind) == (first, "moved")
    assert str(found) == f"a: event {first} is event {second}, put here in its place"


@pytest.mark.parametrize("seq", [1, 2, MIDDLE, LAST])
def test_a_record_of_another_run_is_named_with_its_run(restored, seq):
    path, connection = restored
    swap(connection, place(seq), place(seq, 2))
    found = chain(path)
    assert (found.seq, found.kind) == (seq, "moved")
    assert str(found) == f"a: event {seq} is event {seq} of b, put here in its place"
    assert str(chain(path, "b")) == f"b: event {seq} is event {seq} of a, put here in its place"


def test_two_runs_that_changed_places_whole_are_found(restored):
    path, connection = restored
    connection.execute("UPDATE run SET id = 'c' WHERE no = 1; UPDATE run SET id = 'a' WHERE no = 2")
    connection.execute("UPDATE run SET id = 'b' WHERE no = 1")
    for run, other in (("a", "b"), ("b", "a")):
        assert (
            str(chain(path, run)) == f"{run}: event 1 is event 1 of {other}, put here in its place"
        )


def test_a_chain_that_was_made_anew_from_some_place_on_fits_no_hash_kept_elsewhere(restored):
    path, connection = restored
    with inspect_store(path) as look:
        marks = list(look.heads())
    rows = journal("a", EVERY)
    previous = rows[2].hash
    for row in rows[3:]:
        entry = Entry(
            seq=row.seq,
            at=row.at,
            event=ev.ErrorRaised(error_class="internal", message="forged"),
            step=row.step,
            actor=row.actor,
        )
        forged = seal("a", entry, row.salt, previous)
        previous = forged.hash
        connection.execute(
            "UPDATE event SET data = ?, type = ?, v = 1, hash = ? WHERE id = ?",
            (forged.data, forged.type, forged.hash, place(row.seq)),
        )
    connection.execute("UPDATE run SET hash = ? WHERE no = 1", (previous,))
    assert chain(path) is None, "nothing in the file itself can tell"
    with inspect_store(path) as look:
        [found] = look.missed(marks)
    assert str(found) == f"a: event {LAST} is not the one that was exported"


def test_text_that_is_none_and_salts_of_another_length_are_changes_too(restored):
    path, connection = restored
    for change in ("actor = CAST(x'ff' AS TEXT)", "salt = x'00'", "hash = x''"):
        old = connection.execute("SELECT * FROM event WHERE id = ?", (place(5),)).fetchall()
        connection.execute(f"UPDATE event SET {change} WHERE id = ?", (place(5),))
        found = chain(path)
        assert (found.seq, found.kind) == (5, "changed"), change
        connection.execute("DELETE FROM event WHERE id = ?", (place(5),))
        connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", old)


# ---------------------------------------------------------------- erased or altered


def erase(connection, number, seqs):
    """What an erasure leaves: headers, digests and hashes."""
    for seq in seqs:
        [(salt, data)] = connection.execute(
            "SELECT salt, data FROM event WHERE id = ?", (place(seq, number),)
        ).fetchall()
        digest = sha256(salt + data).digest()
        connection.execute(
            "UPDATE event SET data = NULL, salt = ? WHERE id = ?", (digest, place(seq, number))
        )


def record_erasure(connection, run, head):
    """The fact in the journal of the store, as its owner writes it."""
    [(digest,)] = connection.execute("SELECT hash FROM run WHERE id = ?", (run,)).fetchall()
    fact = ev.StoreErased(run=run, head=head, hash=digest.hex(), reason="asked to")
    row = seal("store", Entry(seq=1, at=START, event=fact), bytes(16), GENESIS)
    connection.execute(
        "INSERT INTO event VALUES (1, ?, 0, '', ?, ?, ?, NULL, ?, ?)",
        (row.at, row.type, row.v, row.data, row.salt, row.hash),
    )
    connection.execute("UPDATE run SET head = 1, counted = 1, hash = ? WHERE no = 0", (row.hash,))


def test_what_was_erased_and_recorded_is_told_from_what_was_altered(restored):
    path, connection = restored
    erase(connection, 1, range(1, LAST + 1))
    found = chain(path)
    assert (found.seq, found.kind) == (1, "unerased")
    assert "the store's journal does not say that it was erased" in str(found)
    record_erasure(connection, "a", LAST)
    with inspect_store(path) as look:
        inspection = look.inspect("a")
    assert (inspection.findings, inspection.erased) == ((), LAST)
    assert chain(path, "store") is None
    connection.execute("UPDATE event SET salt = randomblob(32) WHERE id = ?", (place(4),))
    assert (chain(path).seq, chain(path).kind) == (4, "changed")


def test_data_that_was_taken_away_without_its_digest_is_a_change(restored):
    path, connection = restored
    record_erasure(connection, "a", LAST)
    connection.execute("UPDATE event SET data = NULL WHERE id = ?", (place(3),))
    assert str(chain(path)) == "a: event 3 was changed: its salt is none"


def test_an_erasure_says_nothing_of_what_came_after_it_or_of_other_runs(restored):
    path, connection = restored
    record_erasure(connection, "a", 5)
    erase(connection, 1, [4, 6])
    assert (chain(path).seq, chain(path).kind) == (6, "unerased")
    erase(connection, 2, [2])
    assert (chain(path, "b").seq, chain(path, "b").kind) == (2, "unerased")


# ---------------------------------------------------------------- the rows that follow


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("status = 'failed'", "the run table says status 'failed', the journal says 'completed'"),
        ("waits = 'approval'", "waits 'approval', the journal says ''"),
        ("wake_at = 9", "wake_at 9, the journal says 0"),
        ("steps = 99", "steps 99, the journal says 2"),
        ("tokens = 0", "tokens 0, the journal says 200"),
        ("micro_usd = 1", "micro_usd 1, the journal says 200"),
        ("agent = 'other'", "agent 'other', the journal says 'shop'"),
        ("principal = 'eve'", "principal 'eve', the journal says 'ann'"),
        ("digest = ''", "digest '', the journal says"),
        ("session = 's'", "session 's', the journal says ''"),
        ("updated_at = 5", "updated_at 5, the journal says"),
        ("cancel = 1", "cancel 1, the journal says 0"),
        ("due = 5", "due 5, the journal says None"),
        ("hash = zeroblob(32)", "event 12 is not the one that the run table names"),
    ],
)
def test_a_run_table_that_does_not_follow_from_the_journal_is_found(path, change, said):
    sql(path, f"UPDATE run SET {change} WHERE id = 'granted'")
    with inspect_store(path) as look:
        [found] = look.inspect("granted").findings
        assert look.inspect("denied").findings == ()
    assert said in str(found)
    assert found.run == "granted"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM pending",
        "UPDATE pending SET digest = 'other'",
        "UPDATE pending SET detail = '{}'",
        "UPDATE pending SET expires_at = 1",
        "UPDATE pending SET kind = 'nonsense'",
        "INSERT INTO pending VALUES (99, 1, 'a/9', 'approval', 'c9', 't', '', '', 0)",
    ],
)
def test_an_inbox_that_does_not_follow_from_the_journals_is_found(path, tmp_path, change):
    with runtime(path, [[call("refund", order="7", cents=4)]]) as rt:
        rt.run("shop", "go", id="asking")
    sql(path, change)
    with inspect_store(path) as look:
        wrong = [f for run in look.journals() for f in look.inspect(run).findings]
    assert [f.kind for f in wrong] == ["row"]
    assert "inbox" in wrong[0].text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("digest = 'other'", "the inbox says digest 'other' of asking/1, the journal says '"),
        ("detail = '{}'", "the inbox says detail '{}' of asking/1, the journal says '{"),
        ("expires_at = 1", "the inbox says expires_at 1 of asking/1, the journal says "),
    ],
)
def test_what_differs_in_the_inbox_is_named(path, change, said):
    with runtime(path, [[call("refund", order="7", cents=4)]]) as rt:
        rt.run("shop", "go", id="asking")
    sql(path, f"UPDATE pending SET {change}")
    with inspect_store(path) as look:
        (wrong,) = look.inspect("asking").findings
    assert wrong.text.startswith(said)
    assert wrong.kind == "row"


def test_a_fork_that_names_another_parent_is_found(path):
    sql(path, "UPDATE run SET parent_at = 4 WHERE id = 'again'")
    with inspect_store(path) as look:
        assert look.inspect("again").findings


@pytest.mark.parametrize(
    ("change", "run", "said"),
    [
        ("UPDATE run SET parent = no WHERE id = 'again'", "again", "forked from a later run"),
        ("DELETE FROM run WHERE id = 'denied'", "again", "line 2 of the run table is missing"),
        ("DELETE FROM run WHERE id = 'store'", "store", "no line of the store's own journal"),
    ],
)
def test_a_run_table_that_leads_nowhere_is_found_and_ends(path, cairn, change, run, said):
    sql(path, "PRAGMA foreign_keys = OFF", change)
    told = cairn("verify")
    assert told.code == 1
    assert f"{run}: it cannot be read" in told.err
    assert said in told.err


def test_counters_of_budgets_are_compared_with_the_journals(path, cairn):
    assert cairn("verify").code == 0
    sql(path, "UPDATE spend SET calls = calls - 1 WHERE key = 'ann'")
    said = cairn("verify")
    assert said.code == 1
    assert "budget principal-month: the counter that begins at" in said.err
    assert "to count budgets anew from the journals: cairn budgets --rebuild\n" in said.err
    assert "journals are not as they were written" not in said.err, "all journals are"
    (finding,) = cairn("verify", "--json").objects[-1]["findings"]
    assert (finding["kind"], finding["fix"]) == ("counter", "cairn budgets --rebuild")
    named = cairn("verify", "--store", path.name)
    assert f"cairn budgets --rebuild --store {path.name}\n" in named.err
    assert cairn("verify", "granted").code == 0, "a run alone says nothing of counters"
    assert cairn("budgets", "--rebuild").code == 1
    assert cairn("verify").code == 0
    assert cairn("budgets", "--rebuild").code == 0


def test_what_verify_of_a_store_says_names_the_place_as_well(path):
    sql(path, "UPDATE event SET hash = randomblob(32) WHERE id & 4294967295 = 3")

    async def ask():
        store = open_store(path)
        try:
            await store.verify("granted")
        finally:
            await store.close()

    with pytest.raises(CorruptJournal, match="granted: event 3 was changed: only its hash"):
        asyncio.run(ask())
