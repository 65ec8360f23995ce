-- name: worker_all
-- All workers in the order of their start, and the time.
SELECT
    w.worker_id, w.owner_id, w.host, w.pid, w.process, w.boot_id, w.version, w.started_at_ms,
    w.seen_at_ms, w.beat_ms, w.session_slots, w.process_slots, w.free_sessions, w.free_processes, w.agents, w.processes,
    w.labels, w.channel, w.status, :"schema".lash_now_ms()
FROM :"schema".lash_workers AS w
ORDER BY w.started_at_ms, w.worker_id;

-- name: worker_drain
-- Lets a worker take nothing new.
UPDATE :"schema".lash_workers SET status = 'draining' WHERE worker_id = $1::text RETURNING true;

-- name: worker_leave
-- Removes a worker.
DELETE FROM :"schema".lash_workers WHERE worker_id = $1::text RETURNING true;
