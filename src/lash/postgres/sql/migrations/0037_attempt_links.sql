-- additive: an optional column that older code does not name.

-- The span of the attempt that ran the effect, as a W3C trace context: the span of the next attempt links to it. Null if
-- no hook traced the attempt.
ALTER TABLE :"schema".lash_effects ADD COLUMN traceparent text;
