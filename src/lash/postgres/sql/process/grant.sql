-- name: grant_upsert
-- Lets a scope see a process, or updates kind and label of its grant. No row if the process does not exist.
INSERT INTO :"schema".lash_grants (session_id, frame_id, process_key, kind, label)
SELECT $1::text, $2::text, p.process_key, $4::text, $5::text
FROM :"schema".lash_processes AS p
WHERE p.process_id = $3::text
ON CONFLICT (session_id, frame_id, process_key) DO UPDATE SET kind = excluded.kind, label = excluded.label
RETURNING true;

-- name: grant_revoke
-- Removes one grant.
DELETE FROM :"schema".lash_grants AS g
USING :"schema".lash_processes AS p
WHERE p.process_id = $3::text AND g.session_id = $1::text AND g.frame_id = $2::text AND g.process_key = p.process_key
RETURNING true;

-- name: grant_transfer
-- Moves the grants of processes $5 from one scope to another, all of them or none. Returns which of them exist.
WITH held AS (
    SELECT p.process_id, g.process_key, g.kind, g.label
    FROM unnest($5::text[]) AS wanted (process_id)
    JOIN :"schema".lash_processes AS p ON p.process_id = wanted.process_id
    JOIN :"schema".lash_grants AS g ON g.session_id = $1::text AND g.frame_id = $2::text
        AND g.process_key = p.process_key
    ORDER BY g.process_key
    FOR UPDATE OF g
),
moving AS (
    SELECT * FROM held
    WHERE (SELECT count(*) FROM held) = cardinality($5::text[]) AND ($1::text, $2::text) <> ($3::text, $4::text)
),
gone AS (
    DELETE FROM :"schema".lash_grants AS g
    USING moving
    WHERE g.session_id = $1::text AND g.frame_id = $2::text AND g.process_key = moving.process_key
),
arrived AS (
    INSERT INTO :"schema".lash_grants (session_id, frame_id, process_key, kind, label)
    SELECT $3::text, $4::text, moving.process_key, moving.kind, moving.label
    FROM moving
    ON CONFLICT (session_id, frame_id, process_key) DO UPDATE SET kind = excluded.kind, label = excluded.label
)
SELECT array(SELECT process_id FROM held);

-- name: grant_page
-- The grants of exactly this scope, ordered by process id; only of running processes if $3.
SELECT
    g.session_id, g.frame_id, p.process_id, g.kind, g.label,
    p.process_key, p.process_id, p.registration_hash, p.registration, p.projection, p.wake_session_id,
    p.last_sequence, p.created_at_ms, p.updated_at_ms
FROM :"schema".lash_grants AS g
JOIN :"schema".lash_processes AS p ON p.process_key = g.process_key
WHERE g.session_id = $1::text AND g.frame_id = $2::text AND (NOT $3::boolean OR p.status = 'running')
ORDER BY p.process_id;

-- name: grant_one
-- One grant.
SELECT g.session_id, g.frame_id, p.process_id, g.kind, g.label
FROM :"schema".lash_processes AS p
JOIN :"schema".lash_grants AS g ON g.process_key = p.process_key
WHERE p.process_id = $3::text AND g.session_id = $1::text AND g.frame_id = $2::text;

-- name: grant_of_process
-- The grants of a process, ordered by session and frame. No row if the process does not exist.
SELECT
    p.process_key,
    array(
        SELECT row(g.session_id, g.frame_id, p.process_id, g.kind, g.label)
        FROM :"schema".lash_grants AS g
        WHERE g.process_key = p.process_key
        ORDER BY g.session_id, g.frame_id
    )
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text;

-- name: grant_detach
-- Detaches a session from all processes: removes its grants and clears it as a wake target. Returns how many grants
-- were removed, how many wake targets cleared, and which running processes lost a grant.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
revoked AS (
    DELETE FROM :"schema".lash_grants WHERE session_id = $1::text RETURNING process_key
),
waking AS (
    SELECT process_key FROM :"schema".lash_processes
    WHERE wake_session_id = $1::text
    ORDER BY process_key
    FOR NO KEY UPDATE
),
cleared AS (
    UPDATE :"schema".lash_processes AS p
    SET wake_session_id = NULL, updated_at_ms = clock.now_ms
    FROM clock, waking
    WHERE p.process_key = waking.process_key
    RETURNING p.process_id
),
change AS (
    INSERT INTO :"schema".lash_process_changes (process_id, kind, occurred_at_ms)
    SELECT cleared.process_id, 'changed', clock.now_ms
    FROM cleared, clock
)
SELECT
    (SELECT count(*) FROM revoked),
    (SELECT count(*) FROM cleared),
    array(
        SELECT row(
            p.process_id,
            EXISTS (
                SELECT 1 FROM :"schema".lash_grants AS g
                WHERE g.process_key = p.process_key AND g.session_id <> $1::text
            )
        )
        FROM (SELECT DISTINCT process_key FROM revoked) AS lost
        JOIN :"schema".lash_processes AS p ON p.process_key = lost.process_key
        WHERE p.status = 'running'
    );
