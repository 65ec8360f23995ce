-- name: change_feed
-- The epoch of the feed, how far it was pruned, and whether a position is not beyond its end.
SELECT
    COALESCE((SELECT epoch FROM lash_process_change_epoch WHERE one = 1), ''),
    COALESCE((SELECT seq FROM lash_process_change_floor WHERE one = 1), 0), 0,
    :after <= COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'lash_process_changes'), 0);

-- name: change_end
-- The end of the feed and its epoch.
SELECT
    0, COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'lash_process_changes'), 0),
    COALESCE((SELECT epoch FROM lash_process_change_epoch WHERE one = 1), '');

-- name: change_begin_epoch
-- Begins a new epoch of the feed.
INSERT INTO lash_process_change_epoch (one, epoch) VALUES (1, :epoch)
ON CONFLICT (one) DO UPDATE SET epoch = excluded.epoch;
