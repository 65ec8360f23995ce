-- name: usage_totals
-- The totals of a session's ledger, in the order in which each pair of source and model first occurred.
SELECT source, model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens
FROM lash_usage_totals
WHERE session_key = :session_key
ORDER BY first_revision, first_ordinal;
