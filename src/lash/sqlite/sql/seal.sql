-- name: seal_mark
-- A known value, sealed: whether the storage is sealed, and with which key.
SELECT secret FROM lash_secrets WHERE name = 'sealed';

-- name: seal_keep_mark
-- Writes that value.
INSERT INTO lash_secrets (name, secret, created_at_ms)
VALUES ('sealed', :secret, :now_ms)
ON CONFLICT (name) DO UPDATE SET secret = excluded.secret;
