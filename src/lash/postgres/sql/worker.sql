-- name: worker_all
-- All workers in the order of their start, and the time.
SELECT
    w.worker_id, w.owner_id, w.host, w.pid, w.process, w.boot_id, w.version, w.started_at_ms,
    w.seen_at_ms, w.beat_ms, w.session_slots, w.process_slots, w.free_sessions, w.free_processes, w.agents, w.processes,
    w.labels, w.channel, w.status, :"schema".lash_now_ms()
FROM :"schema".lash_workers AS w
ORDER BY w.started_at_ms, w.worker_id;

-- name: worker_holding
-- The sessions and the processes that workers run.
-- arguments: worker_ids, most
SELECT
    w.worker_id,
    array(
        SELECT s.session_id
        FROM :"schema".lash_session_leases AS l
        JOIN :"schema".lash_sessions AS s ON s.session_key = l.session_key
        WHERE l.process IS NOT NULL AND l.process::json ->> 'boot_id' = w.boot_id AND l.incarnation_id = w.worker_id
            AND l.expires_at_ms > :"schema".lash_now_ms()
        ORDER BY s.session_id
        LIMIT :most::bigint
    ),
    array(
        SELECT p.process_id
        FROM :"schema".lash_process_leases AS l
        JOIN :"schema".lash_processes AS p ON p.process_key = l.process_key
        WHERE l.process IS NOT NULL AND l.process::json ->> 'boot_id' = w.boot_id AND l.incarnation_id = w.worker_id
            AND l.expires_at_ms > :"schema".lash_now_ms() AND l.runnable
        ORDER BY p.process_id
        LIMIT :most::bigint
    )
FROM :"schema".lash_workers AS w
WHERE w.worker_id = ANY(:worker_ids::text[]);

-- name: worker_drain
-- Lets a worker take nothing new, and lets it beat, with which it learns that.
WITH drained AS (
    UPDATE :"schema".lash_workers SET status = 'draining' WHERE worker_id = $1::text RETURNING channel
)
SELECT true, CASE WHEN d.channel IS NOT NULL THEN pg_notify(d.channel, 'operator beat')::text END FROM drained AS d;

-- name: worker_leave
-- Removes a worker.
DELETE FROM :"schema".lash_workers WHERE worker_id = $1::text RETURNING true;

-- name: worker_full
-- Assigns no further session to a worker whose slots ran out, until its next beat. It may be lost, so the statement does
-- not wait for the disk.
WITH relaxed AS (SELECT set_config('synchronous_commit', 'off', true) AS setting)
UPDATE :"schema".lash_workers AS w
SET free_sessions = 0
FROM relaxed AS r
WHERE w.worker_id = $1::text AND w.free_sessions > 0 AND r.setting = 'off';
