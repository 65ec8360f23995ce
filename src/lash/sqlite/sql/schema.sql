-- name: schema_version
-- The number of the last migration that code has to know.
SELECT COALESCE(MAX(number), 0) FROM lash_migrations;

-- name: schema_has_migrations
-- Whether the tables of migrations and of additive migrations exist.
SELECT
    EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'lash_migrations'),
    EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'lashadditions');

-- name: schema_applied
-- The number of the last migration, additive or not, and of the last one that code has to know.
SELECT MAX(m.number, COALESCE((SELECT MAX(a.number) FROM lashadditions AS a), 0)), m.number
FROM (SELECT COALESCE(MAX(number), 0) AS number FROM lash_migrations) AS m;

-- name: schema_last
-- The number of the last migration, additive or not.
SELECT MAX(
    (SELECT COALESCE(MAX(m.number), 0) FROM lash_migrations AS m),
    (SELECT COALESCE(MAX(a.number), 0) FROM lashadditions AS a)
);

-- name: schema_record_addition
-- Records that an additive migration was applied.
INSERT INTO lashadditions (number, name, applied_at_ms) VALUES (:number, :name, :now_ms);

-- name: schema_record_migration
-- Records that a migration was applied.
INSERT INTO lash_migrations (number, name, applied_at_ms) VALUES (:number, :name, :now_ms);

-- name: schema_statements
-- The statement that created each of lash's tables and indexes, in a stable order.
SELECT sql
FROM sqlite_schema
WHERE name LIKE 'lash\_%' ESCAPE '\' AND sql IS NOT NULL
ORDER BY type, name;

-- name: schema_relations
-- The stored relations of some sessions, to find one that an index cannot read.
SELECT session_key, session_id, relation
FROM lash_sessions
WHERE session_key > :after
ORDER BY session_key
LIMIT :limit;

-- name: schema_columns
-- Every column of lash's tables: table, column, type, whether it refuses NULL.
SELECT t.name, c.name, c.type, c."notnull" OR c.pk > 0
FROM sqlite_schema AS t
JOIN pragma_table_info(t.name) AS c
WHERE t.type = 'table' AND t.name LIKE 'lash\_%' ESCAPE '\'
ORDER BY t.name, c.cid;

-- name: schema_unique_keys
-- Every unique key of lash's tables: table, columns, predicate.
SELECT t.name, group_concat(k.name, ','), NULL
FROM sqlite_schema AS t
JOIN pragma_index_list(t.name) AS i
JOIN (SELECT name AS index_name FROM sqlite_schema WHERE type = 'index') AS x ON x.index_name = i.name
JOIN pragma_index_info(i.name) AS k
WHERE t.type = 'table' AND t.name LIKE 'lash\_%' ESCAPE '\' AND i."unique" = 1 AND i.partial = 0
GROUP BY t.name, i.name
UNION ALL
SELECT t.name, group_concat(c.name, ','), NULL
FROM sqlite_schema AS t
JOIN pragma_table_info(t.name) AS c
WHERE t.type = 'table' AND t.name LIKE 'lash\_%' ESCAPE '\' AND c.pk > 0
GROUP BY t.name;

-- name: schema_foreign_keys
-- Every foreign key of lash's tables: table, columns, table referenced, columns referenced.
SELECT t.name, group_concat(f."from", ','), f."table", group_concat(f."to", ',')
FROM sqlite_schema AS t
JOIN pragma_foreign_key_list(t.name) AS f
WHERE t.type = 'table' AND t.name LIKE 'lash\_%' ESCAPE '\'
GROUP BY t.name, f.id;
