-- run      one line a run: who it is, where its journal stands, who drives it, what lists show
-- event    the journal: number of the run << 32 | seq, so that a run's events lie together
-- blob     payloads over 8 KiB, by their SHA-256, each kept once
-- pending  what waits for people, over all runs, in the order it came up
-- owner    one line for each process that drives runs; leases name its token

CREATE TABLE run (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used twice, so a stale number finds nothing
    id         TEXT    NOT NULL UNIQUE,
    parent     INTEGER REFERENCES run (no),         -- whose prefix it shares
    parent_at  INTEGER NOT NULL DEFAULT 0,          -- and how much of it
    head       INTEGER NOT NULL,                    -- seq of the last event
    hash       BLOB    NOT NULL,                    -- and its hash
    epoch      INTEGER NOT NULL DEFAULT 0,          -- goes up with every claim
    owner      TEXT,                                -- token of who drives it
    agent      TEXT    NOT NULL DEFAULT '',
    session    TEXT    NOT NULL DEFAULT '',
    principal  TEXT    NOT NULL DEFAULT '',
    digest     TEXT    NOT NULL DEFAULT '',
    status     TEXT    NOT NULL,
    waits      TEXT    NOT NULL DEFAULT '',         -- joined by commas
    wake_at    INTEGER NOT NULL DEFAULT 0,
    cancel     INTEGER NOT NULL DEFAULT 0,          -- a cancel was requested
    due        INTEGER,                             -- from when on somebody could drive it
    steps      INTEGER NOT NULL DEFAULT 0,
    tokens     INTEGER NOT NULL DEFAULT 0,
    micro_usd  INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX run_due ON run (due) WHERE due IS NOT NULL;
CREATE INDEX run_parent ON run (parent) WHERE parent IS NOT NULL;
CREATE INDEX run_session ON run (session, no) WHERE session <> '';
CREATE UNIQUE INDEX run_active ON run (session)
    WHERE session <> '' AND status NOT IN ('completed', 'failed', 'stopped', 'cancelled');

CREATE TABLE event (
    id    INTEGER PRIMARY KEY,
    at    INTEGER NOT NULL,
    step  INTEGER NOT NULL,
    actor TEXT    NOT NULL,
    type  INTEGER NOT NULL,
    v     INTEGER NOT NULL,
    data  BLOB,                                     -- JSON; NULL when in blob, or erased
    blob  BLOB,
    salt  BLOB    NOT NULL,                         -- 16 bytes; the 32 of the digest when erased
    hash  BLOB    NOT NULL
) STRICT;

CREATE INDEX event_blob ON event (blob) WHERE blob IS NOT NULL;

CREATE TABLE blob (
    hash BLOB PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE pending (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    run        INTEGER NOT NULL REFERENCES run (no) ON DELETE CASCADE,
    id         TEXT    NOT NULL UNIQUE,
    kind       TEXT    NOT NULL,
    call       TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    detail     TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX pending_run ON pending (run);

CREATE TABLE owner (
    token TEXT PRIMARY KEY,
    pid   INTEGER NOT NULL,
    boot  TEXT    NOT NULL,                         -- which start of the machine `beat` belongs to
    beat  INTEGER NOT NULL                          -- its monotonic clock, microseconds
) STRICT;

-- the journal of facts that belong to no run
INSERT INTO run (no, id, head, hash, status, created_at, updated_at)
VALUES (0, 'store', 0, zeroblob(32), '', 0, 0);
