-- What a wait asks of the person who resolves it: a text, a JSON schema of the answer, and details. Null if it asks
-- nothing. It is set once, by the first open that asks.
ALTER TABLE :"schema".lash_waits ADD COLUMN ask text;
