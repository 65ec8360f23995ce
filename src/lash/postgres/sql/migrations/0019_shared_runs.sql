-- Forks share what they inherit: a fork writes the same number of rows, however many forks lie between it and the root.

ALTER TABLE :"schema".lash_inherited RENAME TO lash_inherited_before;
ALTER INDEX :"schema".lash_inherited_pkey RENAME TO lash_inherited_before_pkey;

-- Runs of nodes that forks inherit: depths on one segment of the session that owns them, above floor, up to ceiling.
-- Runs form lists from a leaf to the root; next_key is the run before this one on the path. A fork of a fork continues
-- the list of its source, so lists share their ends. A run never changes, and its nodes cannot be removed.
-- Owner: the forks and runs that name it; removed with the last of them.
CREATE TABLE :"schema".lash_runs (
    run_key   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    next_key  bigint REFERENCES :"schema".lash_runs (run_key),
    owner_key bigint NOT NULL,
    segment   bigint NOT NULL,
    floor     bigint NOT NULL CHECK (floor >= -1),
    ceiling   bigint NOT NULL,
    FOREIGN KEY (owner_key, segment) REFERENCES :"schema".lash_segments (session_key, segment),
    CHECK (floor < ceiling AND next_key < run_key)
);
-- Finds the runs on a session or a segment.
CREATE INDEX lash_runs_owner ON :"schema".lash_runs (owner_key, segment);
-- Finds the runs that continue a list.
CREATE INDEX lash_runs_next ON :"schema".lash_runs (next_key) WHERE next_key IS NOT NULL;

-- The list that a fork inherits, by its last run. To the fork these nodes lie on its own segment 0.
-- Owner: the fork; removed by deleting it or by replacing its graph.
CREATE TABLE :"schema".lash_inherited (
    session_key bigint PRIMARY KEY REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    run_key     bigint NOT NULL REFERENCES :"schema".lash_runs (run_key)
);
-- Finds the forks that name a run.
CREATE INDEX lash_inherited_run ON :"schema".lash_inherited (run_key);

-- The runs that a session inherits, from the last to the first. The server puts its text into the statements that call
-- it. OFFSET 0 makes it look each run up by its key, also while the table is small.
CREATE FUNCTION :"schema".lash_runs_of(heir bigint)
RETURNS TABLE (session_key bigint, run_key bigint, owner_key bigint, segment bigint, floor bigint, ceiling bigint)
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
WITH RECURSIVE run AS (
    SELECT r.*
    FROM :"schema".lash_inherited AS i
    CROSS JOIN LATERAL (SELECT * FROM :"schema".lash_runs AS k WHERE k.run_key = i.run_key OFFSET 0) AS r
    WHERE i.session_key = heir
    UNION ALL
    SELECT r.*
    FROM run AS before
    CROSS JOIN LATERAL (SELECT * FROM :"schema".lash_runs AS k WHERE k.run_key = before.next_key OFFSET 0) AS r
)
SELECT heir, run.run_key, run.owner_key, run.segment, run.floor, run.ceiling FROM run
$$;

-- Forks that exist keep a list of their own.
INSERT INTO :"schema".lash_runs (run_key, next_key, owner_key, segment, floor, ceiling) OVERRIDING SYSTEM VALUE
SELECT
    row_number() OVER (ORDER BY session_key, ceiling),
    CASE WHEN row_number() OVER (PARTITION BY session_key ORDER BY ceiling) > 1
        THEN row_number() OVER (ORDER BY session_key, ceiling) - 1
    END,
    owner_key, segment, floor, ceiling
FROM :"schema".lash_inherited_before
ORDER BY session_key, ceiling;
INSERT INTO :"schema".lash_inherited (session_key, run_key)
SELECT session_key, max(place)
FROM (
    SELECT session_key, row_number() OVER (ORDER BY session_key, ceiling) AS place
    FROM :"schema".lash_inherited_before
) AS placed
GROUP BY session_key;
SELECT setval(pg_get_serial_sequence(r.tableoid::regclass::text, 'run_key'), max(r.run_key))
FROM :"schema".lash_runs AS r
GROUP BY r.tableoid;
DROP TABLE :"schema".lash_inherited_before;
