-- The workers that run. worker_id is the incarnation of the leases that a worker holds. seen_at_ms is the time of its
-- last beat, beat_ms the time within which it promised the next one. boot_id is that of process, for a search that a
-- damaged row does not break. agents and processes, JSON arrays of names, and labels, a JSON object, choose the work
-- that it takes; NULL is all. channel is where a hint reaches this worker alone; NULL if it only polls.
-- Owner: the worker. Removed when it ends, and by the beats of others once it has missed several.
CREATE TABLE lash_workers (
    worker_id      TEXT NOT NULL PRIMARY KEY,
    owner_id       TEXT NOT NULL,
    host           TEXT NOT NULL,
    pid            INTEGER NOT NULL,
    process        TEXT,
    boot_id        TEXT,
    version        TEXT NOT NULL,
    started_at_ms  INTEGER NOT NULL,
    seen_at_ms     INTEGER NOT NULL,
    beat_ms        INTEGER NOT NULL CHECK (beat_ms > 0),
    session_slots  INTEGER NOT NULL,
    process_slots  INTEGER NOT NULL,
    free_sessions  INTEGER NOT NULL,
    free_processes INTEGER NOT NULL,
    agents         TEXT,
    processes      TEXT,
    labels         TEXT,
    channel        TEXT,
    status         TEXT NOT NULL CHECK (status IN ('active', 'draining'))
) STRICT, WITHOUT ROWID;
