-- name: seal_mark
-- A known value, sealed: whether the storage is sealed, and with which key.
SELECT secret FROM :"schema".lash_secrets WHERE name = 'sealed';

-- name: seal_keep_mark
-- Writes that value.
INSERT INTO :"schema".lash_secrets (name, secret, created_at_ms)
VALUES ('sealed', $1::bytea, :"schema".lash_now_ms())
ON CONFLICT (name) DO UPDATE SET secret = excluded.secret
RETURNING true;
