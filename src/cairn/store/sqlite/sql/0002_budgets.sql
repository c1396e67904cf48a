-- spend     counters of budgets: what was used in a window, and what is reserved beside it
-- ledger    one line for each run that has reserved something: what, and when
-- uncounted runs that used something which could not be counted

ALTER TABLE run ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;  -- up to which event it is in `spend`
UPDATE run SET counted = head;

-- a run that somebody wrote to who knows nothing of budgets: nothing can be told until it is counted
CREATE INDEX run_uncounted ON run (no) WHERE counted <> head;

CREATE TABLE spend (
    budget         TEXT    NOT NULL,
    key            TEXT    NOT NULL,                 -- whose it is; empty for all runs
    start          INTEGER NOT NULL,                 -- of the window, microseconds since 1970, UTC
    micro_usd      INTEGER NOT NULL,
    tokens         INTEGER NOT NULL,
    calls          INTEGER NOT NULL,
    held_micro_usd INTEGER NOT NULL,
    held_tokens    INTEGER NOT NULL,
    PRIMARY KEY (budget, key, start)
) STRICT;

CREATE TABLE ledger (
    run  INTEGER PRIMARY KEY REFERENCES run (no) ON DELETE CASCADE,
    data BLOB    NOT NULL                            -- JSON
) STRICT;

CREATE TABLE uncounted (
    run INTEGER PRIMARY KEY
) STRICT;

-- which budgets stand: the last budgets.set of the journal `store`
CREATE INDEX event_budgets ON event (type) WHERE type = 220;
