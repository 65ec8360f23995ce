-- Nodes are listed by kind, and found by their parent.

-- The kind of the entry, such as message or plugin:<plugin_type>. Nodes stored earlier get theirs when this migration is
-- applied: their bodies may be compressed, so SQL cannot read them.
ALTER TABLE lash_nodes ADD COLUMN kind TEXT NOT NULL DEFAULT '';
-- Whether the node opens a segment below its parent. Every other child of a node follows it on its segment.
ALTER TABLE lash_nodes ADD COLUMN begins_branch INTEGER NOT NULL DEFAULT 0 CHECK (begins_branch IN (0, 1));
UPDATE lash_nodes
SET begins_branch = 1
WHERE EXISTS (
    SELECT 1 FROM lash_segments AS g
    WHERE g.session_key = lash_nodes.session_key AND g.segment = lash_nodes.segment
        AND g.parent_depth = lash_nodes.depth - 1
);
-- Lists the nodes of a kind in the order of insertion.
CREATE INDEX lash_nodes_kind ON lash_nodes (session_key, kind, seq);
-- Finds the children of a node that do not follow it on its segment.
CREATE INDEX lash_nodes_branch ON lash_nodes (session_key, parent_node_id, seq) WHERE begins_branch = 1;
