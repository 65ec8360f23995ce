-- The queue.
SELECT 1;
