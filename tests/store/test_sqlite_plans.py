"""What is asked often is answered from an index, however many runs there are."""

import apsw

from cairn.ports import RunFilter
from cairn.store.sqlite import queries, schema, sessions, transaction
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.owners import Owners
from cairn.testing.store_story import START


def plans(ask):
    """How the library answers what `ask` does with a connection."""
    connection = apsw.Connection("")
    schema.migrate(connection, "a file in memory")
    asked = []
    connection.exec_trace = lambda _, sql, values: asked.append((sql, values)) or True
    ask(connection)
    connection.exec_trace = None
    found = []
    for sql, values in asked:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        found.append([row[3] for row in rows])
    return found


def test_finding_work_and_sessions_needs_no_walk_over_all_runs(tmp_path):
    owners = Owners(Settings(path=str(tmp_path / "cairn.db")))

    def ask(connection):
        queries.runnable(connection, owners, ["shop"], START, 100)
        queries.runs(connection, owners, RunFilter(session="s", limit=1))
        sessions.open_lines(connection, "s")
        sessions.head(connection, "s")
        sessions.unread(connection, ["shop"], 100)

    steps = [step for plan in plans(ask) for step in plan if " run" in step or " a " in step]
    assert steps == [
        "SEARCH run USING INDEX run_due (due<?)",
        "SEARCH a USING INDEX run_open (session=? AND no<?)",
        "SEARCH run USING INDEX run_session (session=? AND no>?)",
        "SEARCH run USING INDEX run_open (session=?)",
        "SEARCH run USING INDEX run_session (session=? AND no>?)",
        "SCAN run USING INDEX run_unread",  # it holds only what was left unread
    ]


def test_who_goes_on_from_a_run_is_found_without_a_walk_over_the_other_runs(tmp_path):
    owners = Owners(Settings(path=str(tmp_path / "cairn.db")))

    def ask(connection):
        queries.runs(connection, owners, RunFilter(previous="r1"))

    (plan,) = [plan for plan in plans(ask) if any("run_previous" in step for step in plan)]
    assert [step for step in plan if " USING " in step and "TEMP" not in step] == [
        "SEARCH run USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH a USING INDEX run_previous (previous=?)",
        "SEARCH c USING COVERING INDEX sqlite_autoindex_run_1 (id=?)",
        "SEARCH b USING INDEX run_parent (parent=?)",
    ]
    assert not [step for step in plan if step.startswith("SCAN")]


def test_an_append_finds_its_lines_by_number():
    statements = [*transaction._UPDATE_PLAIN.values(), *transaction._UPDATE_ALL.values()]

    def ask(connection):
        for statement in statements:
            connection.execute(statement, [None] * statement.count("?"))

    found = plans(ask)
    assert len(found) == len(statements)
    for plan in found:
        assert [step for step in plan if " run" in step] == [
            "SEARCH run USING INTEGER PRIMARY KEY (rowid=?)"
        ]


def test_reading_a_run_touches_only_its_own_rows():
    def ask(connection):
        queries.read(connection, "store", 0, 0)
        queries.rows(connection, "store")

    steps = [step for plan in plans(ask) for step in plan]
    assert all(step.startswith("SEARCH ") for step in steps)
