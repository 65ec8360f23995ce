-- Limits on concurrency: how many steps, turns or processes may run at once, over all workers.

-- One row for each name and key in use. check_at_ms is the moment from which on a place may be free although it was not
-- given back: the first expiry of a holder's lease, or of an offer. It is NULL if no run waits.
-- used_at_ms is the last time at which a run asked for a place.
-- Owner: the storage; removed by pruning once the line has no places and was not used for a while.
CREATE TABLE :"schema".lash_limit_lines (
    name        text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    concurrency bigint NOT NULL CHECK (concurrency > 0),
    check_at_ms bigint,
    used_at_ms  bigint NOT NULL,
    PRIMARY KEY (name, key)
);
-- Finds the lines to check.
CREATE INDEX lash_limit_lines_check ON :"schema".lash_limit_lines (check_at_ms) WHERE check_at_ms IS NOT NULL;

-- The places of a line, in the order in which runs asked for them. state 0 waits, 1 is offered until until_ms, 2 is held
-- by the lease of this fencing number for as long as that lease is live. holder is a hash of the run and its step.
-- Owner: the session or the process; removed when the place is given back, when its time is over, or with the owner.
CREATE TABLE :"schema".lash_limit_places (
    place       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    holder      text NOT NULL UNIQUE,
    session_key bigint REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    process_key bigint REFERENCES :"schema".lash_processes (process_key) ON DELETE CASCADE,
    state       bigint NOT NULL CHECK (state BETWEEN 0 AND 2),
    fencing     bigint NOT NULL CHECK (fencing > 0),
    until_ms    bigint NOT NULL,
    since_ms    bigint NOT NULL,
    CHECK ((session_key IS NULL) <> (process_key IS NULL))
);
-- Finds the places that are taken, and the first that waits.
CREATE INDEX lash_limit_places_line ON :"schema".lash_limit_places (name, key, state, place);
-- Removes the places of a session.
CREATE INDEX lash_limit_places_session ON :"schema".lash_limit_places (session_key) WHERE session_key IS NOT NULL;
-- Removes the places of a process.
CREATE INDEX lash_limit_places_process ON :"schema".lash_limit_places (process_key) WHERE process_key IS NOT NULL;
