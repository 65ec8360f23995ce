-- name: usage_totals
-- The totals of a session's ledger, in the order in which each pair of source and model first occurred.
SELECT source, model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens
FROM lash_usage_totals
WHERE session_key = :session_key
ORDER BY first_revision, first_ordinal;

-- fragment: usage_floor
-- A session with the last revision whose entries are too old to be read; without a time, and for a session that is
-- newer, that of no revision. Entries without a time are older than all others.
    SELECT
        s.session_key, s.session_id, s.agent,
        COALESCE(
            (
                SELECT u.revision
                FROM lash_usage AS u
                WHERE u.session_key = s.session_key AND s.created_at_ms < :floor_ms
                    AND (u.committed_at_ms IS NULL OR u.committed_at_ms < :floor_ms)
                ORDER BY u.revision DESC
                LIMIT 1
            ),
            -1
        )

-- fragment: usage_summed
-- The sums of what was spent, in two halves of 32 bits, after a position.
SELECT
    day, model, agent, session_id, source,
    SUM(input_tokens >> 32), SUM(input_tokens & 4294967295),
    SUM(output_tokens >> 32), SUM(output_tokens & 4294967295),
    SUM(cached_input_tokens >> 32), SUM(cached_input_tokens & 4294967295),
    SUM(reasoning_tokens >> 32), SUM(reasoning_tokens & 4294967295)
FROM spent
WHERE (day, model, agent, session_id, source) > (:after_day, :after_model, :after_agent, :after_session, :after_source)
GROUP BY day, model, agent, session_id, source
ORDER BY day, model, agent, session_id, source
LIMIT :limit;

-- fragment: usage_grouped
-- What the chosen sessions spent, and its sums.
),
spent AS (
    SELECT
        CASE WHEN :by_day AND u.committed_at_ms IS NOT NULL THEN u.committed_at_ms / 86400000 ELSE -1 END AS day,
        CASE WHEN :by_model THEN u.model ELSE '' END AS model,
        CASE WHEN :by_agent THEN COALESCE(u.agent, c.agent, '') ELSE '' END AS agent,
        CASE WHEN :by_session THEN c.session_id ELSE '' END AS session_id,
        CASE WHEN :by_source THEN u.source ELSE '' END AS source,
        u.input_tokens, u.output_tokens, u.cached_input_tokens, u.reasoning_tokens
    FROM chosen AS c
    CROSS JOIN lash_usage AS u ON u.session_key = c.session_key AND u.revision > c.floor
    WHERE (NOT :timed OR (u.committed_at_ms >= :since_ms AND u.committed_at_ms < :until_ms))
        AND (:agent IS NULL OR COALESCE(u.agent, c.agent) = :agent) AND (:model IS NULL OR u.model = :model)
)
-- include: usage_summed

-- name: usage_sums
-- The tokens of all sessions, or of the sessions that were active since a moment, grouped.
WITH chosen (session_key, session_id, agent, floor) AS MATERIALIZED (
-- include: usage_floor
    FROM lash_sessions AS s INDEXED BY lash_sessions_active
    WHERE s.updated_at_ms >= COALESCE(:floor_ms, -9223372036854775808)
-- include: usage_grouped

-- name: usage_sums_of_session
-- The tokens of one session, grouped.
WITH chosen (session_key, session_id, agent, floor) AS MATERIALIZED (
-- include: usage_floor
    FROM lash_sessions AS s
    WHERE s.session_id = :session_id
-- include: usage_grouped

-- name: usage_sums_of_all
-- The tokens of all sessions without a first moment, grouped by anything but the session: the ledger is read from end to
-- end, and a session only for its agent.
WITH spent AS (
    SELECT
        CASE WHEN :by_day AND u.committed_at_ms IS NOT NULL THEN u.committed_at_ms / 86400000 ELSE -1 END AS day,
        CASE WHEN :by_model THEN u.model ELSE '' END AS model,
        CASE
            WHEN :by_agent
            THEN COALESCE(
                u.agent, (SELECT s.agent FROM lash_sessions AS s WHERE s.session_key = u.session_key), ''
            )
            ELSE ''
        END AS agent,
        '' AS session_id,
        CASE WHEN :by_source THEN u.source ELSE '' END AS source,
        u.input_tokens, u.output_tokens, u.cached_input_tokens, u.reasoning_tokens
    FROM lash_usage AS u
    WHERE (NOT :timed OR (u.committed_at_ms >= :since_ms AND u.committed_at_ms < :until_ms))
        AND (
            :agent IS NULL
            OR :agent = COALESCE(
                u.agent, (SELECT s.agent FROM lash_sessions AS s WHERE s.session_key = u.session_key)
            )
        )
        AND (:model IS NULL OR u.model = :model)
)
-- include: usage_summed

-- name: usage_sums_by_session
-- The tokens of sessions in the order of their ids, from a position on, without a first moment: as many as have a page of
-- sums.
WITH chosen (session_key, session_id, agent, floor) AS MATERIALIZED (
    SELECT s.session_key, s.session_id, s.agent, -1
    FROM lash_sessions AS s
    WHERE s.session_id >= :after_session
        AND EXISTS (
            SELECT 1
            FROM lash_usage AS u
            WHERE u.session_key = s.session_key
                AND (NOT :timed OR (u.committed_at_ms >= :since_ms AND u.committed_at_ms < :until_ms))
                AND (:agent IS NULL OR COALESCE(u.agent, s.agent) = :agent) AND (:model IS NULL OR u.model = :model)
        )
    ORDER BY s.session_id
    LIMIT :limit + 1
-- include: usage_grouped
