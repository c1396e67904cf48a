"""How a store file becomes one of an earlier version again: what later ones added is dropped."""

ACTIVE = (
    "CREATE UNIQUE INDEX run_active ON run (session) WHERE session <> '' "
    "AND status NOT IN ('completed', 'failed', 'stopped', 'cancelled')"
)
COLUMNS = ("counted", "doubt", "behind", "unread", "previous")
AS_FIRST = (
    "DROP INDEX run_uncounted",
    "DROP INDEX event_budgets",
    "DROP INDEX run_active",
    "DROP INDEX run_open",
    "DROP INDEX run_unread",
    "DROP INDEX run_previous",
    *(
        f"DROP TABLE {name}"
        for name in (
            *("spend", "ledger", "uncounted"),
            *("fact_term", "fact_vector", "fact_gone", "fact"),
            *("message", "place"),
        )
    ),
    *(f"ALTER TABLE run DROP COLUMN {name}" for name in COLUMNS),
    ACTIVE,
    "PRAGMA user_version = 1",
)
MESSAGE = (
    "CREATE TABLE message (id TEXT PRIMARY KEY, run INTEGER NOT NULL REFERENCES run (no) "
    "ON DELETE CASCADE, seq INTEGER NOT NULL) STRICT"
)
AS_FIFTH = (
    "DROP INDEX fact_replaced",
    "DROP INDEX fact_newest",
    "DROP INDEX run_previous",
    "ALTER TABLE run DROP COLUMN previous",
    "ALTER TABLE message RENAME TO message_by_id",
    "DROP INDEX message_run",
    MESSAGE,
    "INSERT INTO message SELECT id, run, seq FROM message_by_id",
    "DROP TABLE message_by_id",
    "CREATE INDEX message_run ON message (run)",
    "PRAGMA user_version = 5",
)
"""The same for one that was written before runs were kept for the sake of those that go on."""
