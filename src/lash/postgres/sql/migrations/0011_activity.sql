-- What can be seen of sessions while they live.

-- How far the activity of each session has come: the newest position, and the bytes of all that was ever shown.
-- Its lock puts appends to one session in a row, so that positions become visible in their order. Activity need not
-- survive a crash of the server, which empties unlogged tables; epoch names one numbering, and is another one then.
-- Owner: the session; made by the first activity and removed with the session.
CREATE UNLOGGED TABLE :"schema".lash_activity_tails (
    session_key   bigint PRIMARY KEY REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    epoch         text NOT NULL,
    position      bigint NOT NULL CHECK (position >= 0),
    written_bytes bigint NOT NULL CHECK (written_bytes >= 0)
) WITH (fillfactor = 50);

-- Activity that is still kept. written_bytes is that of the tail when the row was the newest.
-- Owner: the session; the oldest rows are removed by appending, by pruning, or with the session.
CREATE UNLOGGED TABLE :"schema".lash_activity (
    session_key   bigint NOT NULL REFERENCES :"schema".lash_activity_tails (session_key) ON DELETE CASCADE,
    position      bigint NOT NULL CHECK (position > 0),
    revision      bigint NOT NULL,
    written_bytes bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    body          text NOT NULL,
    PRIMARY KEY (session_key, position)
);

-- How far the feed of changes was pruned, so that a reader that comes too late notices. There is at most one row.
-- Owner: the storage; never removed.
CREATE TABLE :"schema".lash_process_change_floor (
    one  boolean PRIMARY KEY CHECK (one),
    xid  xid8 NOT NULL,
    seq  bigint NOT NULL
);
