-- Lists of the queued batches of all sessions.

-- Nothing to add here: the key of lash_batches is the order of the queue of all sessions.
SELECT 1;
