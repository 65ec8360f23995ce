-- A source key that is consumed removes its batch, which saves a statement of each turn. The delivery of a wake stays:
-- the wake is acknowledged first, by its batch.
CREATE TRIGGER lash_source_keys_consumed AFTER UPDATE OF state ON lash_source_keys
WHEN NEW.state = 'consumed'
    AND NOT EXISTS (SELECT 1 FROM lash_wakes AS w WHERE w.batch_id = NEW.batch_id AND w.state = 'queued')
BEGIN
    DELETE FROM lash_batches WHERE session_key = NEW.session_key AND batch_id = NEW.batch_id;
END;
