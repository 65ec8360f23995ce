-- Nodes name their segment without the server checking it for each of them.

-- A node is written by one statement only, which holds the session's row and its revision, and so the segment on which
-- the node comes to lie: none goes without the session's row being held or deleted. What deletes segments deletes their
-- nodes itself, in the same statement or before.
ALTER TABLE :"schema".lash_nodes DROP CONSTRAINT lash_nodes_session_key_segment_fkey;
