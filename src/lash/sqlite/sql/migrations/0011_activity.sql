-- What can be seen of sessions while they live.

-- How far the activity of each session has come: the newest position, and the bytes of all that was ever shown.
-- epoch names one numbering. Owner: the session; made by the first activity and removed with the session.
CREATE TABLE lash_activity_tails (
    session_key   INTEGER PRIMARY KEY REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    epoch         TEXT NOT NULL,
    position      INTEGER NOT NULL CHECK (position >= 0),
    written_bytes INTEGER NOT NULL CHECK (written_bytes >= 0)
) STRICT;

-- Activity that is still kept. written_bytes is that of the tail when the row was the newest.
-- Owner: the session; the oldest rows are removed by appending, by pruning, or with the session.
CREATE TABLE lash_activity (
    session_key   INTEGER NOT NULL REFERENCES lash_activity_tails (session_key) ON DELETE CASCADE,
    position      INTEGER NOT NULL CHECK (position > 0),
    revision      INTEGER NOT NULL,
    written_bytes INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    body          TEXT NOT NULL,
    PRIMARY KEY (session_key, position)
) STRICT;

-- How far the feed of changes was pruned, so that a reader that comes too late notices. There is at most one row.
-- Owner: the storage; never removed.
CREATE TABLE lash_process_change_floor (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL
) STRICT;
