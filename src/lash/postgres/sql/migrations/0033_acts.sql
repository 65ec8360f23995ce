-- What operators did, and who did it.

-- One row for each act, written before it is done. The outcome is null until it is known. The session and the process are
-- those of the target; they may be gone.
-- Owner: the storage; removed by pruning.
CREATE TABLE :"schema".lash_acts (
    position   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    act_id     text NOT NULL UNIQUE,
    operator   text NOT NULL,
    verb       text NOT NULL,
    target     text NOT NULL,
    session_id text,
    process_id text,
    at_ms      bigint NOT NULL,
    outcome    text CHECK (outcome IN ('done', 'refused')),
    error      text,
    CHECK (session_id IS NULL OR process_id IS NULL),
    CHECK (error IS NULL OR (outcome IS NOT NULL AND outcome = 'refused'))
);
-- Lists the acts of an operator.
CREATE INDEX lash_acts_operator ON :"schema".lash_acts (operator, position);
-- Lists the acts about a session.
CREATE INDEX lash_acts_session ON :"schema".lash_acts (session_id, position) WHERE session_id IS NOT NULL;
-- Lists the acts about a process.
CREATE INDEX lash_acts_process ON :"schema".lash_acts (process_id, position) WHERE process_id IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_acts_at ON :"schema".lash_acts (at_ms);
