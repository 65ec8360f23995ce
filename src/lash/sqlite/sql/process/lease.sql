-- name: process_lease_row
-- The lease row of one process.
SELECT fencing, owner_id, incarnation_id, process, token, claimed_at_ms, expires_at_ms
FROM lash_process_leases
WHERE process_key = :process_key;

-- name: process_lease_acquire
-- Gives the lease to a new holder under the next fencing number. The process is ready from now on, in case the holder
-- lets the lease expire. A lease that was not released counts as a crash. Returns the number of reasons to run, whether
-- the process may have recorded effects, and the number of crashes.
UPDATE lash_process_leases
SET fencing = :fencing, owner_id = :owner_id, incarnation_id = :incarnation_id, process = :process, token = :token,
    claimed_at_ms = :now_ms, expires_at_ms = :expires_at_ms, ready_at_ms = MIN(COALESCE(ready_at_ms, :now_ms), :now_ms),
    crash_count = crash_count + (token IS NOT NULL)
WHERE process_key = :process_key
RETURNING
    wake_seq,
    fencing > 1 OR EXISTS (SELECT 1 FROM lash_effects AS e WHERE e.process_key = :process_key),
    crash_count;

-- name: process_lease_extend
-- Moves the expiry of the lease that this token holds, and returns the number of reasons to run.
UPDATE lash_process_leases
SET expires_at_ms = :expires_at_ms
WHERE process_key = :process_key AND token = :token AND fencing = :fencing
RETURNING wake_seq;

-- name: process_lease_release
-- Frees the lease if the fence still holds it, expired or not; the fencing number stays, and the process is ready since
-- its claim.
UPDATE lash_process_leases
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0
WHERE process_key = :process_key AND owner_id = :owner_id AND incarnation_id = :incarnation_id AND token = :token
    AND fencing = :fencing;

-- name: process_lease_park
-- Frees the lease that this token holds, and takes the process off the work list until a moment (NULL: until it is
-- woken), unless there are more reasons to run it than those seen. Returns false if there are. Its run ended as planned,
-- so crashes are counted from zero.
UPDATE lash_process_leases
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
    crash_count = 0,
    ready_at_ms = CASE WHEN runnable AND wake_seq = :wake_seq THEN :until_ms ELSE ready_at_ms END
WHERE process_key = :process_key AND token = :token AND fencing = :fencing
RETURNING wake_seq = :wake_seq OR NOT runnable;
