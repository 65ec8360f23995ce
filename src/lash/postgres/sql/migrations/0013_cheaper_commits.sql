-- What a commit need not pay for.

-- Nodes name their segment without the server asking for it again for each of them. A node is written by a statement
-- that holds the session's row at a certain revision, and with it all that the plan knew of the graph: a statement that takes
-- segments away holds that row too, and takes their nodes along in the same statement, or before.
ALTER TABLE :"schema".lash_nodes DROP CONSTRAINT lash_nodes_session_key_segment_fkey;

-- State of up to 4 KB stays in its row; beyond that it is compressed, and mostly fits again.
ALTER TABLE :"schema".lash_blobs SET (toast_tuple_target = 4080);
