-- name: notify_send
-- Notifies all listeners that something may have changed, and names the sender. A hint need not survive a crash, so the
-- statement does not wait for the disk.
SELECT pg_notify($1::text, $2::text) FROM set_config('synchronous_commit', 'off', true);

-- name: notify_dispatch
-- The same, and assigns work to workers: the holder of a live lease gets what concerns its session or process, but not
-- messages that it has claimed already; work that is ready and free goes to one worker with a free slot, chosen by a hash of both, so that a session keeps its worker.
-- The worker with the better hash gets it, unless more than half of its slots are taken. The worker of the sender
-- is preferred. Labels are read only if a worker takes sessions by their labels. The text on the common channel ends with the work that was assigned. The text for the worker has the ids
-- and, where they are short, the rows of processes, so that a claim needs no read; only the registry names its channel.
-- arguments: channel, message, session_ids, process_ids, late_beats, sender, preferred, excluded
WITH clock AS (
    SELECT :"schema".lash_now_ms() AS now_ms FROM set_config('synchronous_commit', 'off', true)
),
workers AS MATERIALIZED (
    SELECT w.*
    FROM :"schema".lash_workers AS w
    CROSS JOIN clock AS c
    WHERE w.channel IS NOT NULL AND w.seen_at_ms + :late_beats::bigint * w.beat_ms >= c.now_ms
),
ready AS (
    SELECT
        's' AS kind, wanted.session_id AS id, coalesce(p.agent, b.agent, s.agent) AS name, NULL::json AS facts,
        CASE WHEN EXISTS (SELECT 1 FROM workers AS w WHERE w.labels IS NOT NULL) THEN (
            SELECT jsonb_object_agg(x.key, x.value) FROM :"schema".lash_session_labels AS x
            WHERE x.session_key = s.session_key
        ) END AS labels,
        CASE WHEN l.token IS NOT NULL AND l.expires_at_ms > c.now_ms THEN l.incarnation_id END AS holder
    FROM json_array_elements_text(:session_ids::json) AS wanted (session_id)
    CROSS JOIN clock AS c
    CROSS JOIN LATERAL (
        SELECT s.session_key, s.agent FROM :"schema".lash_sessions AS s WHERE s.session_id = wanted.session_id LIMIT 1
    ) AS s
    CROSS JOIN LATERAL (
        SELECT l.* FROM :"schema".lash_session_leases AS l WHERE l.session_key = s.session_key LIMIT 1
    ) AS l
    LEFT JOIN LATERAL (
        SELECT b.seq, b.agent FROM :"schema".lash_batches AS b
        WHERE b.session_key = s.session_key AND b.available_at_ms = 0
            AND (
                b.claim_token IS NULL OR b.claim_expires_at_ms <= c.now_ms OR l.token IS NULL
                OR l.expires_at_ms <= c.now_ms OR b.claim_lease_fencing <> l.fencing
            )
        LIMIT 1
    ) AS b ON true
    LEFT JOIN LATERAL (
        SELECT b.agent FROM :"schema".lash_batches AS b
        WHERE b.session_key = s.session_key AND b.available_at_ms = 9223372036854775807
        LIMIT 1
    ) AS p ON l.waiting_for IS NOT NULL
    WHERE (b.seq IS NOT NULL OR l.waiting_for IS NOT NULL)
        AND (l.paused_until_ms IS NULL OR l.paused_until_ms <= c.now_ms)
    UNION ALL
    SELECT
        'p', wanted.process_id, p.label,
        CASE WHEN l.token IS NULL AND octet_length(p.registration) + octet_length(p.projection) <= 2000
            THEN json_build_array(
                p.process_key, p.process_id, p.registration_hash, p.registration, p.projection, p.wake_session_id,
                p.last_sequence, p.created_at_ms, p.updated_at_ms
            ) END,
        CASE WHEN EXISTS (SELECT 1 FROM workers AS w WHERE w.labels IS NOT NULL) THEN (
            SELECT jsonb_object_agg(x.key, x.value)
            FROM :"schema".lash_sessions AS s
            JOIN :"schema".lash_session_labels AS x ON x.session_key = s.session_key
            WHERE s.session_id = p.wake_session_id
        ) END,
        CASE WHEN l.token IS NOT NULL AND l.expires_at_ms > c.now_ms THEN l.incarnation_id END
    FROM json_array_elements_text(:process_ids::json) AS wanted (process_id)
    CROSS JOIN clock AS c
    CROSS JOIN LATERAL (
        SELECT p.* FROM :"schema".lash_processes AS p WHERE p.process_id = wanted.process_id LIMIT 1
    ) AS p
    CROSS JOIN LATERAL (
        SELECT l.* FROM :"schema".lash_process_leases AS l WHERE l.process_key = p.process_key LIMIT 1
    ) AS l
    WHERE l.ready_at_ms <= c.now_ms
),
assigned AS MATERIALIZED (
    SELECT r.kind, r.id, r.facts, w.worker_id, w.channel
    FROM ready AS r
    CROSS JOIN LATERAL (
        SELECT near.worker_id, near.channel
        FROM (
            SELECT
                w.worker_id, w.channel, md5(w.worker_id || r.id) COLLATE "C" AS distance,
                CASE r.kind WHEN 's' THEN 2 * w.free_sessions >= w.session_slots
                    ELSE 2 * w.free_processes >= w.process_slots END AS has_room
            FROM workers AS w
            WHERE w.worker_id = r.holder
                OR (
                    r.holder IS NULL AND w.status = 'active' AND w.worker_id <> :excluded::text
                    AND CASE r.kind WHEN 's' THEN w.free_sessions ELSE w.free_processes END > 0
                    AND CASE
                        WHEN r.kind = 's' THEN w.agents IS NULL OR w.agents::jsonb ? r.name
                        ELSE w.processes IS NULL OR w.processes::jsonb ? r.name
                    END
                    AND CASE WHEN w.labels IS NULL THEN true ELSE r.labels @> w.labels::jsonb END
                )
            ORDER BY w.worker_id <> :preferred::text, distance
            LIMIT 2
        ) AS near
        ORDER BY near.worker_id <> :preferred::text, near.has_room DESC, near.distance
        LIMIT 1
    ) AS w
),
sent AS (
    SELECT pg_notify(
        a.channel,
        :sender::text || CASE
            WHEN octet_length(a.sessions) + octet_length(a.processes) + octet_length(a.facts) <= 7800
                THEN ' work [' || a.sessions || ',' || a.processes || ',' || a.facts || ']'
            WHEN octet_length(a.sessions) + octet_length(a.processes) <= 7800
                THEN ' work [' || a.sessions || ',' || a.processes || ',[]]'
            ELSE ' poll'
        END
    )
    FROM (
        SELECT
            each.channel,
            coalesce(json_agg(each.id) FILTER (WHERE each.kind = 's'), '[]')::text AS sessions,
            coalesce(json_agg(each.id) FILTER (WHERE each.kind = 'p'), '[]')::text AS processes,
            coalesce(json_agg(each.facts) FILTER (WHERE each.facts IS NOT NULL), '[]')::text AS facts
        FROM assigned AS each
        GROUP BY each.channel
    ) AS a
)
SELECT
    pg_notify(
        :channel::text,
        :message::text || ' ' || coalesce(
            (
                SELECT string_agg(
                    a.kind || left(encode(sha256(convert_to(a.id, 'UTF8')), 'hex'), 4) || ':' || left(md5(a.worker_id), 8),
                    ','
                )
                FROM assigned AS a
            ),
            '-'
        )
    ),
    (SELECT count(*) FROM sent);

-- name: notify_suspect
-- Assigns nothing more to workers that did not take what they were assigned, until their next beat, and lets them beat.
WITH suspected AS (
    UPDATE :"schema".lash_workers AS w
    SET free_sessions = 0, free_processes = 0
    WHERE left(md5(w.worker_id), 8) = ANY ($1::text[])
    RETURNING w.channel
)
SELECT pg_notify(s.channel, $2::text || ' beat') FROM suspected AS s WHERE s.channel IS NOT NULL;
