-- name: schema_lock
-- Lets one process at a time read and change the tables of one schema.
SELECT pg_advisory_xact_lock(hashtextextended('lash migrations ' || $1::text, 0));

-- name: schema_has_migrations
-- Whether the tables of migrations and of additive migrations exist.
SELECT to_regclass($1::text) IS NOT NULL, to_regclass($2::text) IS NOT NULL;

-- name: schema_create
-- Creates the schema unless it exists.
CREATE SCHEMA IF NOT EXISTS :"schema";

-- name: schema_exists
-- Whether the schema exists.
SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1::text);

-- name: schema_version
-- The number of the last migration that code has to know.
SELECT coalesce(max(number), 0) FROM :"schema".lash_migrations;

-- name: schema_applied
-- The number of the last migration, additive or not, and of the last one that code has to know.
SELECT greatest(m.number, (SELECT max(a.number) FROM :"schema".lashadditions AS a)), m.number
FROM (SELECT coalesce(max(number), 0) AS number FROM :"schema".lash_migrations) AS m;

-- name: schema_last
-- The number of the last migration, additive or not.
SELECT greatest(
    (SELECT coalesce(max(m.number), 0) FROM :"schema".lash_migrations AS m),
    (SELECT max(a.number) FROM :"schema".lashadditions AS a)
);

-- name: schema_record_addition
-- Records that an additive migration was applied.
INSERT INTO :"schema".lashadditions (number, name, applied_at_ms)
VALUES ($1::bigint, $2::text, :"schema".lash_now_ms());

-- name: schema_record_migration
-- Records that a migration was applied.
INSERT INTO :"schema".lash_migrations (number, name, applied_at_ms)
VALUES ($1::bigint, $2::text, :"schema".lash_now_ms());

-- name: schema_relations
-- The stored relations of some sessions, to find one that an index cannot read.
SELECT session_key, session_id, relation
FROM :"schema".lash_sessions
WHERE session_key > $1::bigint
ORDER BY session_key
LIMIT $2::bigint;

-- name: schema_columns
-- Every column of lash's tables that can be written: table, column, type, whether it refuses NULL.
SELECT t.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_class AS t
JOIN pg_namespace AS n ON n.oid = t.relnamespace
JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
WHERE n.nspname = $1::text AND t.relkind IN ('r', 'p') AND t.relname LIKE 'lash\_%'
ORDER BY t.relname, a.attnum;

-- name: schema_keys
-- Every unique key of lash's tables (table, columns, predicate), and every foreign key (table, columns, NULL, table
-- referenced, columns referenced).
SELECT
    t.relname::text,
    (
        SELECT string_agg(a.attname::text, ',' ORDER BY k.place)
        FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum = k.number
    ),
    pg_get_expr(i.indpred, i.indrelid), NULL, NULL
FROM pg_class AS t
JOIN pg_namespace AS n ON n.oid = t.relnamespace
JOIN pg_index AS i ON i.indrelid = t.oid AND i.indisunique AND i.indisvalid AND i.indexprs IS NULL
WHERE n.nspname = $1::text AND t.relkind IN ('r', 'p') AND t.relname LIKE 'lash\_%'
UNION ALL
SELECT
    t.relname::text,
    (
        SELECT string_agg(a.attname::text, ',' ORDER BY k.place)
        FROM unnest(c.conkey) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = k.number
    ),
    NULL, r.relname::text,
    (
        SELECT string_agg(a.attname::text, ',' ORDER BY k.place)
        FROM unnest(c.confkey) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute AS a ON a.attrelid = c.confrelid AND a.attnum = k.number
    )
FROM pg_constraint AS c
JOIN pg_class AS t ON t.oid = c.conrelid
JOIN pg_class AS r ON r.oid = c.confrelid
JOIN pg_namespace AS n ON n.oid = t.relnamespace
WHERE n.nspname = $1::text AND c.contype = 'f' AND t.relname LIKE 'lash\_%';
