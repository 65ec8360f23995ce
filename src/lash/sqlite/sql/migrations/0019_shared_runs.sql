-- Forks share what they inherit: a fork writes the same number of rows, however many forks lie between it and the root.

ALTER TABLE lash_inherited RENAME TO lash_inherited_before;

-- Runs of nodes that forks inherit: depths on one segment of the session that owns them, above floor, up to ceiling.
-- Runs form lists from a leaf to the root; next_key is the run before this one on the path. A fork of a fork continues
-- the list of its source, so lists share their ends. A run never changes, and its nodes cannot be removed.
-- Owner: the forks and runs that name it; removed with the last of them.
CREATE TABLE lash_runs (
    run_key   INTEGER PRIMARY KEY AUTOINCREMENT,
    next_key  INTEGER REFERENCES lash_runs (run_key),
    owner_key INTEGER NOT NULL,
    segment   INTEGER NOT NULL,
    floor     INTEGER NOT NULL CHECK (floor >= -1),
    ceiling   INTEGER NOT NULL,
    FOREIGN KEY (owner_key, segment) REFERENCES lash_segments (session_key, segment),
    CHECK (floor < ceiling AND next_key < run_key)
) STRICT;
-- Finds the runs on a session or a segment.
CREATE INDEX lash_runs_owner ON lash_runs (owner_key, segment);
-- Finds the runs that continue a list.
CREATE INDEX lash_runs_next ON lash_runs (next_key) WHERE next_key IS NOT NULL;

-- The list that a fork inherits, by its last run. To the fork these nodes lie on its own segment 0.
-- Owner: the fork; removed by deleting it or by replacing its graph.
CREATE TABLE lash_inherited (
    session_key INTEGER PRIMARY KEY REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    run_key     INTEGER NOT NULL REFERENCES lash_runs (run_key)
) STRICT;
-- Finds the forks that name a run.
CREATE INDEX lash_inherited_run ON lash_inherited (run_key);

-- Forks that exist keep a list of their own.
INSERT INTO lash_runs (run_key, next_key, owner_key, segment, floor, ceiling)
SELECT
    ROW_NUMBER() OVER (ORDER BY session_key, ceiling),
    CASE WHEN ROW_NUMBER() OVER (PARTITION BY session_key ORDER BY ceiling) > 1
        THEN ROW_NUMBER() OVER (ORDER BY session_key, ceiling) - 1
    END,
    owner_key, segment, floor, ceiling
FROM lash_inherited_before
ORDER BY session_key, ceiling;
INSERT INTO lash_inherited (session_key, run_key)
SELECT session_key, MAX(place)
FROM (SELECT session_key, ROW_NUMBER() OVER (ORDER BY session_key, ceiling) AS place FROM lash_inherited_before)
GROUP BY session_key;
DROP TABLE lash_inherited_before;
-- A table without rows has assigned no number.
DELETE FROM sqlite_sequence WHERE name = 'lash_runs' AND seq = 0;
