"""How a store file becomes one of the first version again: what later versions added is dropped."""

ACTIVE = (
    "CREATE UNIQUE INDEX run_active ON run (session) WHERE session <> '' "
    "AND status NOT IN ('completed', 'failed', 'stopped', 'cancelled')"
)
AS_FIRST = (
    "DROP INDEX run_uncounted",
    "DROP INDEX event_budgets",
    "DROP INDEX run_active",
    "DROP INDEX run_open",
    "DROP INDEX run_unread",
    *(
        f"DROP TABLE {name}"
        for name in (
            *("spend", "ledger", "uncounted"),
            *("fact_term", "fact_vector", "fact_gone", "fact"),
            *("message", "place"),
        )
    ),
    *(f"ALTER TABLE run DROP COLUMN {name}" for name in ("counted", "doubt", "behind", "unread")),
    ACTIVE,
    "PRAGMA user_version = 1",
)
