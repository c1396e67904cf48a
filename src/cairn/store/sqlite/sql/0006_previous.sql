-- previous  the run of its session, or of the one that was forked, that a run goes on from

ALTER TABLE run ADD COLUMN previous TEXT NOT NULL DEFAULT '';       -- its id; empty if it begins a session

-- as the first event of a run says it (type 1) ...
UPDATE run SET previous = coalesce((
    SELECT json_extract(said, '$.previous.run') FROM (
        SELECT CAST(coalesce(e.data, b.data) AS TEXT) AS said
        FROM event AS e LEFT JOIN blob AS b ON b.hash = e.blob
        WHERE e.id = (run.no << 32) + 1 AND e.type = 1
    ) WHERE json_valid(said)
), '') WHERE session <> '';

-- ... or what stands in its place when it waited behind another (type 11)
UPDATE run SET previous = coalesce((
    SELECT json_extract(said, '$.previous.run') FROM (
        SELECT CAST(coalesce(e.data, b.data) AS TEXT) AS said
        FROM event AS e LEFT JOIN blob AS b ON b.hash = e.blob
        WHERE e.id > run.no << 32 AND e.id < (run.no + 1) << 32 AND e.type = 11
        ORDER BY e.id LIMIT 1
    ) WHERE json_valid(said)
), '') WHERE session <> '' AND previous = '' AND (parent IS NOT NULL OR EXISTS (
    SELECT 1 FROM event AS e LEFT JOIN blob AS b ON b.hash = e.blob
    WHERE e.id = (run.no << 32) + 1 AND e.type = 1
    AND json_valid(CAST(coalesce(e.data, b.data) AS TEXT))
    AND json_extract(CAST(coalesce(e.data, b.data) AS TEXT), '$.behind') <> ''
));

CREATE INDEX run_previous ON run (previous) WHERE previous <> '';

-- message  as it was, in one tree: its key is most of what it holds
CREATE TABLE message_by_id (
    id  TEXT    PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (no) ON DELETE CASCADE,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO message_by_id SELECT id, run, seq FROM message;
DROP TABLE message;
ALTER TABLE message_by_id RENAME TO message;
CREATE INDEX message_run ON message (run);
