-- fragment: usage_floor
-- A session with the last revision whose entries are too old to be read; without a time ($5), and for a session that is
-- newer, that of no revision. Entries without a time are older than all others.
    SELECT s.session_key, s.session_id, s.agent, coalesce(old.revision, -1) AS floor
    FROM :"schema".lash_sessions AS s
    LEFT JOIN LATERAL (
        SELECT u.revision
        FROM :"schema".lash_usage AS u
        WHERE u.session_key = s.session_key AND (u.committed_at_ms IS NULL OR u.committed_at_ms < $5::bigint)
        ORDER BY u.revision DESC
        LIMIT 1
    ) AS old ON s.created_at_ms < $5::bigint

-- fragment: usage_summed
-- The sums of what was spent, in two halves of 32 bits, after the position $9 to $13, at most $14.
SELECT
    day, model, agent, session_id, source,
    sum(input_tokens >> 32)::bigint, sum(input_tokens & 4294967295)::bigint,
    sum(output_tokens >> 32)::bigint, sum(output_tokens & 4294967295)::bigint,
    sum(cached_input_tokens >> 32)::bigint, sum(cached_input_tokens & 4294967295)::bigint,
    sum(reasoning_tokens >> 32)::bigint, sum(reasoning_tokens & 4294967295)::bigint
FROM spent
WHERE (day, model, agent, session_id, source) > ($9::bigint, $10::text, $11::text, $12::text, $13::text)
GROUP BY day, model, agent, session_id, source
ORDER BY day, model, agent, session_id, source
LIMIT $14::bigint;

-- fragment: usage_grouped
-- What the chosen sessions spent by $1, and its sums; if $2, in the time from $3 on and before $4; of the agent $7 and the
-- model $8 unless they are NULL.
),
spent AS (
    SELECT
        CASE WHEN 'day' = ANY ($1::text[]) THEN coalesce(u.committed_at_ms / 86400000, -1) ELSE -1 END AS day,
        CASE WHEN 'model' = ANY ($1::text[]) THEN u.model ELSE '' END COLLATE "C" AS model,
        CASE WHEN 'agent' = ANY ($1::text[]) THEN coalesce(u.agent, c.agent, '') ELSE '' END COLLATE "C" AS agent,
        CASE WHEN 'session' = ANY ($1::text[]) THEN c.session_id ELSE '' END COLLATE "C" AS session_id,
        CASE WHEN 'source' = ANY ($1::text[]) THEN u.source ELSE '' END COLLATE "C" AS source,
        u.input_tokens, u.output_tokens, u.cached_input_tokens, u.reasoning_tokens
    FROM chosen AS c
    -- OFFSET keeps the planner from joining whole tables where few entries are new.
    CROSS JOIN LATERAL (
        SELECT e.*
        FROM :"schema".lash_usage AS e
        WHERE e.session_key = c.session_key AND e.revision > c.floor
        OFFSET 0
    ) AS u
    WHERE (NOT $2::boolean OR (u.committed_at_ms >= $3::bigint AND u.committed_at_ms < $4::bigint))
        AND ($7::text IS NULL OR coalesce(u.agent, c.agent) = $7::text) AND ($8::text IS NULL OR u.model = $8::text)
)
-- include: usage_summed

-- name: usage_sums
-- The tokens of all sessions, or of the sessions that were active since $5, grouped. $6 is that of usage_sums_of_session.
WITH chosen AS MATERIALIZED (
-- include: usage_floor
    WHERE s.active_s >= coalesce($5::bigint / 1000, -9223372036854775808) AND $6::text IS NULL
-- include: usage_grouped

-- name: usage_sums_of_session
-- The tokens of the session $6, grouped.
WITH chosen AS MATERIALIZED (
-- include: usage_floor
    WHERE s.session_id = $6::text
-- include: usage_grouped

-- name: usage_sums_of_all
-- The tokens of all sessions without a first moment, grouped by anything but the session: the ledger is read from end to
-- end, and a session only for its agent. $5 and $6 are those of the others.
WITH spent AS (
    SELECT
        CASE WHEN 'day' = ANY ($1::text[]) THEN coalesce(u.committed_at_ms / 86400000, -1) ELSE -1 END AS day,
        CASE WHEN 'model' = ANY ($1::text[]) THEN u.model ELSE '' END COLLATE "C" AS model,
        CASE
            WHEN 'agent' = ANY ($1::text[])
            THEN coalesce(
                u.agent, (SELECT s.agent FROM :"schema".lash_sessions AS s WHERE s.session_key = u.session_key), ''
            )
            ELSE ''
        END COLLATE "C" AS agent,
        '' COLLATE "C" AS session_id,
        CASE WHEN 'source' = ANY ($1::text[]) THEN u.source ELSE '' END COLLATE "C" AS source,
        u.input_tokens, u.output_tokens, u.cached_input_tokens, u.reasoning_tokens
    FROM :"schema".lash_usage AS u
    WHERE (NOT $2::boolean OR (u.committed_at_ms >= $3::bigint AND u.committed_at_ms < $4::bigint))
        AND (
            $7::text IS NULL
            OR $7::text = coalesce(
                u.agent, (SELECT s.agent FROM :"schema".lash_sessions AS s WHERE s.session_key = u.session_key)
            )
        )
        AND ($8::text IS NULL OR u.model = $8::text) AND $5::bigint IS NULL AND $6::text IS NULL
)
-- include: usage_summed

-- name: usage_sums_by_session
-- The tokens of sessions in the order of their ids, from $12 on, without a first moment: as many as have $14 sums. $5 and
-- $6 are those of the others.
WITH chosen AS MATERIALIZED (
    SELECT s.session_key, s.session_id, s.agent, -1::bigint AS floor
    FROM :"schema".lash_sessions AS s
    WHERE s.session_id COLLATE "C" >= $12::text AND $5::bigint IS NULL AND $6::text IS NULL
        AND EXISTS (
            SELECT 1
            FROM :"schema".lash_usage AS u
            WHERE u.session_key = s.session_key
                AND (NOT $2::boolean OR (u.committed_at_ms >= $3::bigint AND u.committed_at_ms < $4::bigint))
                AND ($7::text IS NULL OR coalesce(u.agent, s.agent) = $7::text)
                AND ($8::text IS NULL OR u.model = $8::text)
            OFFSET 0
        )
    ORDER BY s.session_id COLLATE "C"
    LIMIT $14::bigint + 1
-- include: usage_grouped
