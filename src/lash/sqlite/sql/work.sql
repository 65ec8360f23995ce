-- name: work_wake_own
-- Counts one more reason to run a process and makes it ready, whether it is parked or running. Does nothing if it ended
-- or is not run by workers.
UPDATE lash_process_leases
SET wake_seq = wake_seq + 1, ready_at_ms = MIN(COALESCE(ready_at_ms, :now_ms), :now_ms)
WHERE process_key = :process_key AND runnable;

-- name: work_wake_parent
-- Counts one more reason to run the parent of a process that ended, and makes the parent ready.
UPDATE lash_process_leases
SET wake_seq = wake_seq + 1, ready_at_ms = MIN(COALESCE(ready_at_ms, :now_ms), :now_ms)
WHERE runnable AND process_key = (
        SELECT parent.process_key
        FROM lash_processes AS child
        JOIN lash_processes AS parent ON parent.process_id = child.parent_process_id
        WHERE child.process_key = :process_key
    );

-- name: work_end
-- Takes a process that ended off the work list.
UPDATE lash_process_leases SET runnable = 0, ready_at_ms = NULL WHERE process_key = :process_key;

-- name: work_forget_effects
-- Deletes the effects of the last run of a process that continues.
DELETE FROM lash_effects WHERE process_key = :process_key;

-- name: work_forget_groups
-- Deletes the groups of effects of the last run of a process that continues.
DELETE FROM lash_effect_groups WHERE process_key = :process_key;

-- name: work_note_wake
-- Notes a reason to continue a turn of a session.
INSERT INTO lash_session_wakes (wake_id, session_key) VALUES (lower(hex(randomblob(16))), :session_key);

-- name: work_take_wakes
-- Removes some reasons to continue turns, and returns their sessions.
DELETE FROM lash_session_wakes
WHERE wake_id IN (SELECT wake_id FROM lash_session_wakes LIMIT :limit)
RETURNING session_key;

-- name: work_wake_session
-- Counts one more reason to continue a turn of a session. Returns the session if its parked turn is ready because of it.
UPDATE lash_session_leases
SET wake_seq = wake_seq + 1,
    paused_until_ms = CASE
        WHEN waiting_for IS NOT NULL THEN MIN(paused_until_ms, :now_ms)
        ELSE paused_until_ms
    END
WHERE session_key = :session_key
RETURNING (
    SELECT s.session_id FROM lash_sessions AS s WHERE s.session_key = :session_key AND waiting_for IS NOT NULL
);

-- fragment: work_by_lane
-- What the lists have found, by lane.
found (lane, part, place, session_key) AS (
    SELECT 0, -priority, place, session_key FROM urgent
    UNION ALL
    SELECT 1, 0, place, session_key FROM due
    UNION ALL
    SELECT 1, 0, place, session_key FROM parked
    UNION ALL
    SELECT 2, 0, place, session_key FROM arrived
    UNION ALL
    SELECT 2, 1, session_key, session_key FROM aged
    UNION ALL
    SELECT 3, 0, place, session_key FROM newest
)
SELECT found.lane, s.session_id
FROM found
CROSS JOIN lash_sessions AS s ON s.session_key = found.session_key
ORDER BY found.lane, found.part, found.place, found.session_key;

-- fragment: work_of_free_sessions
-- Of some batches b those whose session has no live lease and no pause.
    CROSS JOIN lash_session_leases AS l ON l.session_key = b.session_key
    WHERE (l.token IS NULL OR l.expires_at_ms <= :now_ms)
        AND (l.paused_until_ms IS NULL OR l.paused_until_ms <= :now_ms)

-- fragment: work_of_labelled_sessions
-- Of some batches b those whose session has all labels of a JSON object.
        AND NOT EXISTS (
            SELECT 1 FROM json_each(:labels) AS wanted
            WHERE wanted.value IS NOT (
                SELECT x.value FROM lash_session_labels AS x WHERE x.session_key = b.session_key AND x.key = wanted.key
            )
        )

-- name: work_sessions
-- Sessions that have ready work, no live lease and no pause, by lane. 0: by priority, then by arrival. 1: whose parked
-- turn has been ready, or whose delayed work has been due, for longest. 2: by arrival. 3: the newest first. Lanes 0, 2
-- and 3 read up to 256 batches more than they need: those of running and of paused sessions are left out. If lane 2
-- finds too few, more sessions follow by their own age, with one step through the index per session: the first batches
-- may all be of a few sessions.
WITH RECURSIVE urgent (session_key, priority, place) AS (
    SELECT b.session_key, b.priority, b.seq
    FROM (
        SELECT b.session_key, b.priority, b.seq FROM lash_batches AS b INDEXED BY lash_batches_urgent
        WHERE b.available_at_ms = 0 AND b.priority > 0
        ORDER BY b.priority DESC, b.seq
        LIMIT :limit + 256
    ) AS b
-- include: work_of_free_sessions
    LIMIT :limit
),
arrived (session_key, place) AS MATERIALIZED (
    SELECT b.session_key, b.seq
    FROM (
        SELECT b.session_key, b.seq FROM lash_batches AS b INDEXED BY lash_batches_arrived
        WHERE b.available_at_ms = 0
        ORDER BY b.seq
        LIMIT :limit + 256
    ) AS b
-- include: work_of_free_sessions
    LIMIT :limit
),
newest (session_key, place) AS (
    SELECT b.session_key, -b.seq
    FROM (
        SELECT b.session_key, b.seq FROM lash_batches AS b INDEXED BY lash_batches_arrived
        WHERE b.available_at_ms = 0
        ORDER BY b.seq DESC
        LIMIT :limit + 256
    ) AS b
-- include: work_of_free_sessions
    LIMIT (:limit + 3) / 4
),
due (session_key, place) AS (
    SELECT b.session_key, b.available_at_ms
    FROM lash_batches AS b INDEXED BY lash_batches_due
-- include: work_of_free_sessions
        AND b.available_at_ms > 0 AND b.available_at_ms <= :now_ms
    ORDER BY b.available_at_ms
    LIMIT :limit
),
parked (session_key, place) AS (
    SELECT l.session_key, l.paused_until_ms
    FROM lash_session_leases AS l INDEXED BY lash_session_leases_parked
    WHERE l.waiting_for IS NOT NULL AND l.paused_until_ms <= :now_ms
        AND (l.token IS NULL OR l.expires_at_ms <= :now_ms)
    ORDER BY l.paused_until_ms
    LIMIT :limit
),
walk (session_key) AS (
    SELECT (SELECT MIN(session_key) FROM lash_batches INDEXED BY lash_batches_ready WHERE available_at_ms = 0)
    WHERE (SELECT COUNT(DISTINCT session_key) FROM arrived) < :limit
    UNION ALL
    SELECT (
        SELECT MIN(b.session_key) FROM lash_batches AS b INDEXED BY lash_batches_ready
        WHERE b.available_at_ms = 0 AND b.session_key > w.session_key
    )
    FROM walk AS w
    WHERE w.session_key IS NOT NULL
),
aged (session_key) AS (
    SELECT b.session_key
    FROM walk AS b
-- include: work_of_free_sessions
    LIMIT :limit
),
-- include: work_by_lane

-- name: work_sessions_of_agents
-- The same for the agents of a JSON array. Lanes 0 and 3 leave out the batches of other agents too. Lane 1 has a limit
-- for the due work of each agent, so that none hides another. Lane 2 is by the age of sessions, with one step through
-- the index per session.
WITH RECURSIVE urgent (session_key, priority, place) AS (
    SELECT b.session_key, b.priority, b.seq
    FROM (
        SELECT b.session_key, b.priority, b.seq, b.agent FROM lash_batches AS b INDEXED BY lash_batches_urgent
        WHERE b.available_at_ms = 0 AND b.priority > 0
        ORDER BY b.priority DESC, b.seq
        LIMIT :limit + 256
    ) AS b
-- include: work_of_free_sessions
        AND b.agent IN (SELECT value FROM json_each(:agents))
    LIMIT :limit
),
newest (session_key, place) AS (
    SELECT b.session_key, -b.seq
    FROM (
        SELECT b.session_key, b.seq, b.agent FROM lash_batches AS b INDEXED BY lash_batches_arrived
        WHERE b.available_at_ms = 0
        ORDER BY b.seq DESC
        LIMIT :limit + 256
    ) AS b
-- include: work_of_free_sessions
        AND b.agent IN (SELECT value FROM json_each(:agents))
    LIMIT (:limit + 3) / 4
),
due (session_key, place) AS (
    SELECT b.session_key, b.available_at_ms
    FROM json_each(:agents) AS wanted
    CROSS JOIN lash_batches AS b ON b.seq IN (
        SELECT b.seq
        FROM lash_batches AS b INDEXED BY lash_batches_agent
-- include: work_of_free_sessions
            AND b.agent = wanted.value AND b.available_at_ms > 0 AND b.available_at_ms <= :now_ms
        ORDER BY b.available_at_ms
        LIMIT :limit
    )
),
parked (session_key, place) AS (
    SELECT l.session_key, l.paused_until_ms
    FROM lash_session_leases AS l INDEXED BY lash_session_leases_parked
    CROSS JOIN lash_sessions AS s ON s.session_key = l.session_key
    WHERE l.waiting_for IS NOT NULL AND l.paused_until_ms <= :now_ms
        AND (l.token IS NULL OR l.expires_at_ms <= :now_ms)
        AND COALESCE(
            (
                SELECT b.agent FROM lash_batches AS b INDEXED BY lash_batches_delayed
                WHERE b.session_key = l.session_key AND b.available_at_ms > 0
                    AND b.available_at_ms = 9223372036854775807
                LIMIT 1
            ),
            s.agent
        ) IN (SELECT value FROM json_each(:agents))
    ORDER BY l.paused_until_ms
    LIMIT :limit
),
walk (agent, session_key) AS (
    SELECT
        wanted.value,
        (
            SELECT MIN(b.session_key) FROM lash_batches AS b INDEXED BY lash_batches_agent
            WHERE b.agent = wanted.value AND b.available_at_ms = 0
        )
    FROM json_each(:agents) AS wanted
    UNION ALL
    SELECT
        w.agent,
        (
            SELECT MIN(b.session_key) FROM lash_batches AS b INDEXED BY lash_batches_agent
            WHERE b.agent = w.agent AND b.available_at_ms = 0 AND b.session_key > w.session_key
        )
    FROM walk AS w
    WHERE w.session_key IS NOT NULL
),
aged (session_key) AS (
    SELECT b.session_key
    FROM walk AS b
-- include: work_of_free_sessions
    LIMIT :limit
),
found (lane, part, place, session_key) AS (
    SELECT 0, -priority, place, session_key FROM urgent
    UNION ALL
    SELECT 1, 0, place, session_key FROM due
    UNION ALL
    SELECT 1, 0, place, session_key FROM parked
    UNION ALL
    SELECT 2, 0, session_key, session_key FROM aged
    UNION ALL
    SELECT 3, 0, place, session_key FROM newest
)
SELECT found.lane, s.session_id
FROM found
CROSS JOIN lash_sessions AS s ON s.session_key = found.session_key
ORDER BY found.lane, found.part, found.place, found.session_key;

-- name: work_sessions_of_labels
-- The same for sessions that have all labels of a JSON object, and for all agents if the array is NULL. Each list reads a
-- bounded part of the work of other sessions. Long parts are read from a place on that :place, from 0 to 1, chooses:
-- between the first and the last session with ready work, and among the sessions with the first of the labels.
WITH RECURSIVE urgent (session_key, priority, place) AS (
    SELECT b.session_key, b.priority, b.seq
    FROM (
        SELECT b.session_key, b.priority, b.seq, b.agent FROM lash_batches AS b INDEXED BY lash_batches_urgent
        WHERE b.available_at_ms = 0 AND b.priority > 0
        ORDER BY b.priority DESC, b.seq
        LIMIT :limit + 256
    ) AS b
-- include: work_of_free_sessions
        AND (:agents IS NULL OR b.agent IN (SELECT value FROM json_each(:agents)))
-- include: work_of_labelled_sessions
    LIMIT :limit
),
arrived (session_key, place) AS (
    SELECT b.session_key, b.seq
    FROM (
        SELECT b.session_key, b.seq, b.agent FROM lash_batches AS b INDEXED BY lash_batches_arrived
        WHERE b.available_at_ms = 0
        ORDER BY b.seq
        LIMIT :limit + 256
    ) AS b
-- include: work_of_free_sessions
        AND (:agents IS NULL OR b.agent IN (SELECT value FROM json_each(:agents)))
-- include: work_of_labelled_sessions
    LIMIT :limit
),
newest (session_key, place) AS (
    SELECT b.session_key, -b.seq
    FROM (
        SELECT b.session_key, b.seq, b.agent FROM lash_batches AS b INDEXED BY lash_batches_arrived
        WHERE b.available_at_ms = 0
        ORDER BY b.seq DESC
        LIMIT :limit + 256
    ) AS b
-- include: work_of_free_sessions
        AND (:agents IS NULL OR b.agent IN (SELECT value FROM json_each(:agents)))
-- include: work_of_labelled_sessions
    LIMIT (:limit + 3) / 4
),
due (session_key, place) AS (
    SELECT b.session_key, b.available_at_ms
    FROM (
        SELECT b.session_key, b.available_at_ms, b.agent FROM lash_batches AS b INDEXED BY lash_batches_due
        WHERE b.available_at_ms > 0 AND b.available_at_ms <= :now_ms
        ORDER BY b.available_at_ms
        LIMIT 1024
    ) AS b
-- include: work_of_free_sessions
        AND (:agents IS NULL OR b.agent IN (SELECT value FROM json_each(:agents)))
-- include: work_of_labelled_sessions
    LIMIT :limit
),
parked (session_key, place) AS (
    SELECT b.session_key, b.paused_until_ms
    FROM lash_session_leases AS b INDEXED BY lash_session_leases_parked
    CROSS JOIN lash_sessions AS s ON s.session_key = b.session_key
    WHERE b.waiting_for IS NOT NULL AND b.paused_until_ms <= :now_ms
        AND (b.token IS NULL OR b.expires_at_ms <= :now_ms)
        AND (
            :agents IS NULL
            OR COALESCE(
                (
                    SELECT q.agent FROM lash_batches AS q INDEXED BY lash_batches_delayed
                    WHERE q.session_key = b.session_key AND q.available_at_ms > 0
                        AND q.available_at_ms = 9223372036854775807
                    LIMIT 1
                ),
                s.agent
            ) IN (SELECT value FROM json_each(:agents))
        )
-- include: work_of_labelled_sessions
    ORDER BY b.paused_until_ms
    LIMIT :limit
),
walk (session_key, step) AS (
    SELECT
        (
            SELECT MIN(b.session_key) FROM lash_batches AS b INDEXED BY lash_batches_ready
            WHERE b.available_at_ms = 0 AND b.session_key >= ends.first + CAST(:place * (ends.last - ends.first) AS INTEGER)
        ),
        1
    FROM (
        SELECT
            (SELECT MIN(session_key) FROM lash_batches INDEXED BY lash_batches_ready WHERE available_at_ms = 0) AS first,
            (SELECT MAX(session_key) FROM lash_batches INDEXED BY lash_batches_ready WHERE available_at_ms = 0) AS last
    ) AS ends
    UNION ALL
    SELECT
        (
            SELECT MIN(b.session_key) FROM lash_batches AS b INDEXED BY lash_batches_ready
            WHERE b.available_at_ms = 0 AND b.session_key > w.session_key
        ),
        w.step + 1
    FROM walk AS w
    WHERE w.session_key IS NOT NULL AND w.step < 1024
),
labelled (session_key) AS (
    SELECT x.session_key
    FROM (SELECT key, value FROM json_each(:labels) LIMIT 1) AS lead
    CROSS JOIN lash_session_labels AS x INDEXED BY lash_session_labels_value
        ON x.key = lead.key AND x.value = lead.value
    WHERE x.session_key >= CAST(
            :place * (
                SELECT MAX(y.session_key) FROM lash_session_labels AS y INDEXED BY lash_session_labels_value
                WHERE y.key = lead.key AND y.value = lead.value
            ) AS INTEGER
        )
    LIMIT 1024
),
aged (session_key) AS (
    SELECT b.session_key
    FROM (SELECT session_key FROM labelled UNION SELECT session_key FROM walk) AS b
-- include: work_of_free_sessions
-- include: work_of_labelled_sessions
        AND (
            EXISTS (
                SELECT 1 FROM lash_batches AS q INDEXED BY lash_batches_ready
                WHERE q.session_key = b.session_key AND q.available_at_ms = 0
                    AND (:agents IS NULL OR q.agent IN (SELECT value FROM json_each(:agents)))
            )
            OR EXISTS (
                SELECT 1 FROM lash_batches AS q INDEXED BY lash_batches_delayed
                WHERE q.session_key = b.session_key AND q.available_at_ms > 0 AND q.available_at_ms <= :now_ms
                    AND (:agents IS NULL OR q.agent IN (SELECT value FROM json_each(:agents)))
            )
        )
    LIMIT :limit
),
-- include: work_by_lane

-- fragment: work_of_labelled_processes
-- Of some processes p those whose session has all labels of a JSON object, or all if it is NULL.
        AND (
            :labels IS NULL
            OR NOT EXISTS (
                SELECT 1 FROM json_each(:labels) AS wanted
                WHERE wanted.value IS NOT (
                    SELECT x.value
                    FROM lash_sessions AS s
                    CROSS JOIN lash_session_labels AS x ON x.session_key = s.session_key
                    WHERE s.session_id = p.wake_session_id AND x.key = wanted.key
                )
            )
        )

-- name: work_processes
-- Ready processes that are free or whose lease expired, and that are not bound to another owner.
WITH free (process_id, ready_at_ms, process_key) AS (
    SELECT p.process_id, l.ready_at_ms, l.process_key
    FROM lash_process_leases AS l INDEXED BY lash_process_leases_ready
    CROSS JOIN lash_processes AS p ON p.process_key = l.process_key
    WHERE l.ready_at_ms IS NOT NULL AND l.token IS NULL AND l.ready_at_ms <= :now_ms
        AND (:process_names IS NULL OR p.label IN (SELECT value FROM json_each(:process_names)))
-- include: work_of_labelled_processes
        AND (
            p.recovery <> 'owner_bound' OR p.projection ->> '$.started_by' IS NULL
            OR (
                p.projection ->> '$.started_by.owner_id' = :owner_id
                AND p.projection ->> '$.started_by.incarnation_id' = :incarnation_id
            )
        )
    ORDER BY l.ready_at_ms, l.process_key
    LIMIT :limit
),
lapsed (process_id, ready_at_ms, process_key) AS (
    SELECT p.process_id, l.ready_at_ms, l.process_key
    FROM lash_process_leases AS l INDEXED BY lash_process_leases_lapsed
    CROSS JOIN lash_processes AS p ON p.process_key = l.process_key
    WHERE l.ready_at_ms IS NOT NULL AND l.token IS NOT NULL AND l.expires_at_ms <= :now_ms
        AND (:process_names IS NULL OR p.label IN (SELECT value FROM json_each(:process_names)))
-- include: work_of_labelled_processes
        AND (
            p.recovery <> 'owner_bound'
            OR (
                p.projection ->> '$.started_by.owner_id' = :owner_id
                AND p.projection ->> '$.started_by.incarnation_id' = :incarnation_id
            )
        )
    ORDER BY l.expires_at_ms, l.process_key
    LIMIT :limit
)
SELECT found.process_id
FROM (SELECT * FROM free UNION ALL SELECT * FROM lapsed) AS found
ORDER BY found.ready_at_ms, found.process_key
LIMIT :limit;

-- name: work_commanded
-- The given sessions that have a command without a live claim that is ready, or delayed and due.
SELECT s.session_id
FROM json_each(:session_ids) AS wanted
CROSS JOIN lash_sessions AS s ON s.session_id = wanted.value
CROSS JOIN lash_session_leases AS l ON l.session_key = s.session_key
WHERE EXISTS (
        SELECT 1 FROM lash_batches AS b INDEXED BY lash_batches_ready
        WHERE b.session_key = s.session_key AND b.lane = 'command' AND b.available_at_ms = 0
            AND (
                b.claim_token IS NULL OR b.claim_expires_at_ms <= :now_ms
                OR l.token IS NULL OR l.fencing <> b.claim_lease_fencing
            )
    )
    OR EXISTS (
        SELECT 1 FROM lash_batches AS b INDEXED BY lash_batches_delayed
        WHERE b.session_key = s.session_key AND b.available_at_ms > 0 AND b.available_at_ms <= :now_ms
            AND b.lane = 'command'
    );

-- name: work_cancelled
-- The given processes that were asked to stop.
SELECT p.process_id
FROM json_each(:process_ids) AS wanted
CROSS JOIN lash_processes AS p ON p.process_id = wanted.value
WHERE EXISTS (
    SELECT 1 FROM lash_process_events AS e INDEXED BY lash_process_events_type
    WHERE e.process_key = p.process_key AND e.event_type = 'process.cancel_requested'
);

-- name: work_session_holders
-- The other incarnations that hold sessions on one boot of a machine: one step through the index per incarnation.
WITH RECURSIVE walk (incarnation_id) AS (
    SELECT MIN(l.incarnation_id) FROM lash_session_leases AS l INDEXED BY lash_session_leases_holder
    WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id
    UNION ALL
    SELECT (
        SELECT MIN(l.incarnation_id) FROM lash_session_leases AS l INDEXED BY lash_session_leases_holder
        WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id AND l.incarnation_id > w.incarnation_id
    )
    FROM walk AS w
    WHERE w.incarnation_id IS NOT NULL
)
SELECT w.incarnation_id
FROM walk AS w
WHERE w.incarnation_id IS NOT NULL AND w.incarnation_id <> :incarnation_id
LIMIT :limit;

-- name: work_process_holders
-- The other incarnations that hold processes on one boot of a machine: one step through the index per incarnation.
WITH RECURSIVE walk (incarnation_id) AS (
    SELECT MIN(l.incarnation_id) FROM lash_process_leases AS l INDEXED BY lash_process_leases_holder
    WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id
    UNION ALL
    SELECT (
        SELECT MIN(l.incarnation_id) FROM lash_process_leases AS l INDEXED BY lash_process_leases_holder
        WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id AND l.incarnation_id > w.incarnation_id
    )
    FROM walk AS w
    WHERE w.incarnation_id IS NOT NULL
)
SELECT w.incarnation_id
FROM walk AS w
WHERE w.incarnation_id IS NOT NULL AND w.incarnation_id <> :incarnation_id
LIMIT :limit;

-- name: work_held_sessions
-- Some live session leases of one incarnation.
SELECT
    s.session_id, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
FROM lash_session_leases AS l INDEXED BY lash_session_leases_holder
CROSS JOIN lash_sessions AS s ON s.session_key = l.session_key
WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id AND l.incarnation_id = :incarnation_id
    AND l.process ->> '$.host_id' = :host_id AND l.expires_at_ms > :now_ms
LIMIT :limit;

-- name: work_held_processes
-- Some live leases of one incarnation on processes that can still be run.
SELECT
    p.process_id, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
FROM lash_process_leases AS l INDEXED BY lash_process_leases_holder
CROSS JOIN lash_processes AS p ON p.process_key = l.process_key
WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id AND l.incarnation_id = :incarnation_id
    AND l.process ->> '$.host_id' = :host_id AND l.expires_at_ms > :now_ms AND l.runnable
LIMIT :limit;

-- name: work_marks
-- Which lists of a poll are not empty: ready or due work of sessions; ready or expired processes; sessions and
-- processes that other incarnations of one boot hold. Then the next moment at which something becomes ready without a
-- write, one arm per kind, and the moment at which the first schedule, deadline of a wait or line of a limit is due,
-- which may have passed. Then the number of the last migration, which another program may have applied, and whether there are
-- reasons to continue turns that were not counted yet. At last the session of the only ready batch, if there is one batch
-- without priority, its session is free, and nothing else of a session is ready: the list of sessions is then that one.
-- Each is a step or two through an index; the query of a list costs tens of microseconds even if the list is empty.
SELECT
    (SELECT MIN(session_key) FROM lash_batches INDEXED BY lash_batches_ready WHERE available_at_ms = 0) IS NOT NULL
    OR EXISTS (
        SELECT 1 FROM lash_batches INDEXED BY lash_batches_due
        WHERE available_at_ms > 0 AND available_at_ms <= :now_ms
    )
    OR EXISTS (
        SELECT 1 FROM lash_session_leases INDEXED BY lash_session_leases_parked
        WHERE waiting_for IS NOT NULL AND paused_until_ms <= :now_ms
    ),
    EXISTS (
        SELECT 1 FROM lash_process_leases INDEXED BY lash_process_leases_ready
        WHERE ready_at_ms IS NOT NULL AND token IS NULL AND ready_at_ms <= :now_ms
    )
    OR EXISTS (
        SELECT 1 FROM lash_process_leases INDEXED BY lash_process_leases_lapsed
        WHERE ready_at_ms IS NOT NULL AND token IS NOT NULL AND expires_at_ms <= :now_ms
    ),
    EXISTS (
        SELECT 1 FROM lash_session_leases AS l INDEXED BY lash_session_leases_holder
        WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id AND l.incarnation_id < :incarnation_id
    )
    OR EXISTS (
        SELECT 1 FROM lash_session_leases AS l INDEXED BY lash_session_leases_holder
        WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id AND l.incarnation_id > :incarnation_id
    ),
    EXISTS (
        SELECT 1 FROM lash_process_leases AS l INDEXED BY lash_process_leases_holder
        WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id AND l.incarnation_id < :incarnation_id
    )
    OR EXISTS (
        SELECT 1 FROM lash_process_leases AS l INDEXED BY lash_process_leases_holder
        WHERE l.process IS NOT NULL AND l.process ->> '$.boot_id' = :boot_id AND l.incarnation_id > :incarnation_id
    ),
    (
        SELECT MIN(soon.at_ms)
        FROM (
            SELECT MIN(b.available_at_ms) AS at_ms FROM lash_batches AS b INDEXED BY lash_batches_due
            WHERE b.available_at_ms > :now_ms AND b.available_at_ms > 0
            UNION ALL
            SELECT MIN(l.ready_at_ms) FROM lash_process_leases AS l INDEXED BY lash_process_leases_ready
            WHERE l.ready_at_ms IS NOT NULL AND l.token IS NULL AND l.ready_at_ms > :now_ms
            UNION ALL
            SELECT MIN(l.paused_until_ms) FROM lash_session_leases AS l INDEXED BY lash_session_leases_paused
            WHERE l.paused_until_ms IS NOT NULL AND l.paused_until_ms > :now_ms
        ) AS soon
    ),
    (
        SELECT MIN(timer.at_ms)
        FROM (
            SELECT MIN(s.next_fire_ms) AS at_ms FROM lash_schedules AS s INDEXED BY lash_schedules_due
            WHERE s.next_fire_ms IS NOT NULL
            UNION ALL
            SELECT MIN(w.deadline_ms) FROM lash_waits AS w INDEXED BY lash_waits_deadline
            WHERE w.resolution IS NULL AND w.deadline_ms IS NOT NULL
            UNION ALL
            SELECT MIN(c.check_at_ms) FROM lash_limit_lines AS c INDEXED BY lash_limit_lines_check
            WHERE c.check_at_ms IS NOT NULL
        ) AS timer
    ),
    (SELECT MAX(number) FROM lash_migrations),
    EXISTS (SELECT 1 FROM lash_session_wakes),
    (
        SELECT (SELECT s.session_id FROM lash_sessions AS s WHERE s.session_key = b.session_key)
        FROM lash_batches AS b
-- include: work_of_free_sessions
            AND b.seq = (SELECT MIN(seq) FROM lash_batches INDEXED BY lash_batches_arrived WHERE available_at_ms = 0)
            AND b.seq = (SELECT MAX(seq) FROM lash_batches INDEXED BY lash_batches_arrived WHERE available_at_ms = 0)
            AND b.priority = 0
            AND NOT EXISTS (
                SELECT 1 FROM lash_batches INDEXED BY lash_batches_due
                WHERE available_at_ms > 0 AND available_at_ms <= :now_ms
            )
            AND NOT EXISTS (
                SELECT 1 FROM lash_session_leases INDEXED BY lash_session_leases_parked
                WHERE waiting_for IS NOT NULL AND paused_until_ms <= :now_ms
            )
    );
