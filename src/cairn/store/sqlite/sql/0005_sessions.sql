-- message   where a message went that came with an id of its own, and was queued in a run
-- place     what was said of a session beside its runs: its title, and the run it was put on

ALTER TABLE run ADD COLUMN behind INTEGER NOT NULL DEFAULT 0;   -- it has not begun: others of its session go before it
ALTER TABLE run ADD COLUMN unread INTEGER NOT NULL DEFAULT 0;   -- messages it left unread, and no later run has taken over

DROP INDEX run_active;
CREATE UNIQUE INDEX run_active ON run (session)
    WHERE session <> '' AND behind = 0 AND status NOT IN ('completed', 'failed', 'stopped', 'cancelled');
CREATE INDEX run_open ON run (session, no)
    WHERE session <> '' AND status NOT IN ('completed', 'failed', 'stopped', 'cancelled');
CREATE INDEX run_unread ON run (no) WHERE unread > 0;

CREATE TABLE message (
    id  TEXT    PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (no) ON DELETE CASCADE,
    seq INTEGER NOT NULL
) STRICT;

CREATE INDEX message_run ON message (run);

CREATE TABLE place (
    no      INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT    NOT NULL UNIQUE,
    title   TEXT    NOT NULL DEFAULT '',
    run     TEXT    NOT NULL DEFAULT '',                -- the run it was put on; empty if it never was
    newest  INTEGER NOT NULL DEFAULT 0                  -- number of the newest run that no longer counts then
) STRICT;

CREATE INDEX place_run ON place (run) WHERE run <> '';
