-- The workers that run. worker_id is the incarnation of the leases that a worker holds. seen_at_ms is the time of its
-- last beat, beat_ms the time within which it promised the next one. boot_id is that of process, for a search that a
-- damaged row does not break. agents and processes, JSON arrays of names, and labels, a JSON object, choose the work
-- that it takes; NULL is all. channel is where a hint reaches this worker alone; NULL if it only polls. Beats
-- update the rows in place, which needs free space in their pages.
-- Owner: the worker. Removed when it ends, and by the beats of others once it has missed several.
CREATE TABLE :"schema".lash_workers (
    worker_id      text COLLATE "C" PRIMARY KEY,
    owner_id       text NOT NULL,
    host           text NOT NULL,
    pid            bigint NOT NULL,
    process        text,
    boot_id        text,
    version        text NOT NULL,
    started_at_ms  bigint NOT NULL,
    seen_at_ms     bigint NOT NULL,
    beat_ms        bigint NOT NULL CHECK (beat_ms > 0),
    session_slots  bigint NOT NULL,
    process_slots  bigint NOT NULL,
    free_sessions  bigint NOT NULL,
    free_processes bigint NOT NULL,
    agents         text,
    processes      text,
    labels         text,
    channel        text,
    status         text NOT NULL CHECK (status IN ('active', 'draining'))
) WITH (fillfactor = 50);
