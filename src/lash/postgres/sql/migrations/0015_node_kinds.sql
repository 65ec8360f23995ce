-- Nodes are listed by kind, and found by their parent.

-- The kind of the entry, such as message or plugin:<plugin_type>. Nodes stored earlier get theirs when this migration is
-- applied: their bodies may be compressed, so SQL cannot read them.
ALTER TABLE :"schema".lash_nodes ADD COLUMN kind text NOT NULL DEFAULT '';
-- Whether the node opens a segment below its parent. Every other child of a node follows it on its segment.
ALTER TABLE :"schema".lash_nodes ADD COLUMN begins_branch boolean NOT NULL DEFAULT false;
UPDATE :"schema".lash_nodes AS n
SET begins_branch = true
FROM :"schema".lash_segments AS g
WHERE g.session_key = n.session_key AND g.segment = n.segment AND g.parent_depth = n.depth - 1;
-- Lists the nodes of a kind in the order of insertion.
CREATE INDEX lash_nodes_kind ON :"schema".lash_nodes (session_key, kind, seq);
-- Finds the children of a node that do not follow it on its segment.
CREATE INDEX lash_nodes_branch ON :"schema".lash_nodes (session_key, parent_node_id, seq) WHERE begins_branch;
