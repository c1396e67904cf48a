-- fact         what is remembered; the journal `store` names each with its hash, never its text
-- fact_term    the words that live facts are found by, scope by scope, so that none meets another's
-- fact_vector  their meaning in numbers, 32-bit floats of length 1
-- fact_gone    tombstones of facts that were removed
--
-- No foreign keys: an erasing empties these tables at one stroke and writes what stays anew, because
-- pages that rows were moved out of hold copies of them, whatever secure_delete says

CREATE TABLE fact (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    scope      INTEGER NOT NULL,             -- made of kind, name and tenant; who shares it
    principal  TEXT    NOT NULL,             -- for whom it was kept, of the scope's tenant
    tenant     TEXT    NOT NULL,
    key        TEXT    NOT NULL,             -- of the wish that brought it; empty for none
    state      TEXT    NOT NULL,             -- live, waiting, superseded
    trust      TEXT    NOT NULL,             -- owner, agent, untrusted
    successor  INTEGER NOT NULL DEFAULT 0,   -- the fact that replaced it
    expires_at INTEGER NOT NULL DEFAULT 0,
    length     INTEGER NOT NULL,             -- how many words it has
    data       BLOB    NOT NULL,             -- JSON, what never changes
    salt       BLOB    NOT NULL,
    hash       BLOB    NOT NULL              -- of salt and data
) STRICT;

CREATE INDEX fact_in ON fact (scope, state, expires_at, length);
CREATE INDEX fact_of ON fact (principal, tenant, state);
CREATE UNIQUE INDEX fact_key ON fact (key) WHERE key <> '';

CREATE TABLE fact_term (
    scope INTEGER NOT NULL,
    term  TEXT    NOT NULL,
    fact  INTEGER NOT NULL,
    times INTEGER NOT NULL,
    UNIQUE (scope, term, fact)
) STRICT;

CREATE INDEX fact_term_of ON fact_term (fact);

CREATE TABLE fact_vector (
    fact   INTEGER PRIMARY KEY,
    model  TEXT NOT NULL,
    vector BLOB NOT NULL,
    hash   BLOB NOT NULL                     -- of the fact's hash, the model and the vector
) STRICT;

CREATE TABLE fact_gone (
    no   INTEGER PRIMARY KEY,
    hash BLOB    NOT NULL,
    at   INTEGER NOT NULL,
    by   TEXT    NOT NULL,
    why  TEXT    NOT NULL,                   -- forgotten, rejected, expired, erased
    key  TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX fact_gone_key ON fact_gone (key) WHERE key <> '';
