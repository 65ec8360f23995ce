-- Long entries of conversations are kept compressed, and the small checkpoints of commits in one tree instead of two.

-- The compressed body of a long node; its column body is then empty.
ALTER TABLE lash_nodes ADD COLUMN packed BLOB CHECK (packed IS NULL OR body = '');

-- The small part of the checkpoint of each revision that is kept.
-- Owner: the session; a commit removes what its retention policy no longer keeps.
CREATE TABLE lash_checkpoints_of_sessions (
    session_key              INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    revision                 INTEGER NOT NULL,
    checkpoint_ref           TEXT NOT NULL,
    turn_state               TEXT NOT NULL,
    plugin_snapshot_revision INTEGER,
    PRIMARY KEY (session_key, revision)
) STRICT, WITHOUT ROWID;
INSERT INTO lash_checkpoints_of_sessions
SELECT session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision FROM lash_checkpoints;
DROP TABLE lash_checkpoints;
ALTER TABLE lash_checkpoints_of_sessions RENAME TO lash_checkpoints;
