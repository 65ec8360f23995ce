-- name: process_lease_row
-- The lease row of one process.
SELECT fencing, owner_id, incarnation_id, process, token, claimed_at_ms, expires_at_ms
FROM lash_process_leases
WHERE process_key = :process_key;

-- name: process_lease_acquire
-- Gives the lease to a new holder under the next fencing number.
UPDATE lash_process_leases
SET fencing = :fencing, owner_id = :owner_id, incarnation_id = :incarnation_id, process = :process, token = :token,
    claimed_at_ms = :now_ms, expires_at_ms = :expires_at_ms
WHERE process_key = :process_key;

-- name: process_lease_extend
-- Moves the expiry of the lease that this token holds.
UPDATE lash_process_leases
SET expires_at_ms = :expires_at_ms
WHERE process_key = :process_key AND token = :token AND fencing = :fencing;

-- name: process_lease_release
-- Frees the lease if the fence still holds it, expired or not; the fencing number stays.
UPDATE lash_process_leases
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0
WHERE process_key = :process_key AND owner_id = :owner_id AND incarnation_id = :incarnation_id AND token = :token
    AND fencing = :fencing;
