-- What operators did, and who did it.

-- One row for each act, written before it is done. The outcome is null until it is known. The session and the process are
-- those of the target; they may be gone.
-- Owner: the storage; removed by pruning.
CREATE TABLE lash_acts (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    act_id     TEXT NOT NULL UNIQUE,
    operator   TEXT NOT NULL,
    verb       TEXT NOT NULL,
    target     TEXT NOT NULL,
    session_id TEXT,
    process_id TEXT,
    at_ms      INTEGER NOT NULL,
    outcome    TEXT CHECK (outcome IN ('done', 'refused')),
    error      TEXT,
    CHECK (session_id IS NULL OR process_id IS NULL),
    CHECK (error IS NULL OR (outcome IS NOT NULL AND outcome = 'refused'))
) STRICT;
-- Lists the acts of an operator.
CREATE INDEX lash_acts_operator ON lash_acts (operator, position);
-- Lists the acts about a session.
CREATE INDEX lash_acts_session ON lash_acts (session_id, position) WHERE session_id IS NOT NULL;
-- Lists the acts about a process.
CREATE INDEX lash_acts_process ON lash_acts (process_id, position) WHERE process_id IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_acts_at ON lash_acts (at_ms);
