"""Statements that damage a storage, by kind, and the findings that name them."""

from __future__ import annotations

from typing import Final, NamedTuple


class Planted(NamedTuple):
    """A statement that damages a storage, and the finding that names it."""

    statement: str
    where: str
    problem: str

    def names(self, where: str, problem: str) -> bool:
        """Return whether a finding names this damage."""
        return where.startswith(self.where) and self.problem in problem


_KEY: Final = "(SELECT session_key FROM lash_sessions WHERE session_id = 's')"
_RUN: Final = "(SELECT process_key FROM lash_processes WHERE process_id = 'research-7')"

MISSING: Final = (
    Planted("DELETE FROM lash_session_ids WHERE session_id = 's'", "session 's'", "not reserved"),
    Planted(f"DELETE FROM lash_session_leases WHERE session_key = {_KEY}", "session 's'", "no lease row"),
    Planted(f"DELETE FROM lash_session_labels WHERE session_key = {_KEY}", "session 's'", "find it by its owner"),
    Planted(f"DELETE FROM lash_nodes WHERE session_key = {_KEY} AND depth = 0", "session 's'", "below its parent"),
    Planted(f"DELETE FROM lash_checkpoints WHERE session_key = {_KEY}", "session 's'", "no checkpoint"),
    Planted(f"DELETE FROM lash_blobs WHERE session_key = {_KEY}", "session 's'", "contradicts its revisions"),
    Planted(f"DELETE FROM lash_frames WHERE session_key = {_KEY}", "session 's'", "current frame is missing"),
    Planted(f"DELETE FROM lash_usage WHERE session_key = {_KEY}", "session 's'", "not the sums of its ledger"),
    Planted("DELETE FROM lash_source_keys", "session 's'", "has not reserved its source key"),
    Planted("DELETE FROM lash_attachment_fences", "session 's'", "no matching byte guard"),
    Planted(
        f"DELETE FROM lash_process_events WHERE process_key = {_RUN} AND sequence = 1",
        "process 'research-7'",
        "not numbered",
    ),
    Planted(f"DELETE FROM lash_process_leases WHERE process_key = {_RUN}", "process 'research-7'", "no lease row"),
    Planted(
        f"UPDATE lash_process_events SET seq = 1000000 WHERE process_key = {_RUN} AND sequence = 1",
        "process 'research-7'",
        "feed of changes",
    ),
    Planted(
        "UPDATE lash_processes SET start_seq = NULL WHERE process_id = 'begun-1'", "process 'begun-1'", "not numbered"
    ),
    Planted(
        "UPDATE lash_processes SET end_seq = NULL WHERE process_id = 'begun-1'", "process 'begun-1'", "not numbered"
    ),
    Planted("UPDATE lash_processes SET end_payload = NULL WHERE process_id = 'begun-1'", "process 'begun-1'", "read"),
    Planted(
        "UPDATE lash_processes SET start_seq = end_seq WHERE process_id = 'begun-1'",
        "process 'begun-1'",
        "feed of changes",
    ),
    Planted("DELETE FROM lash_effect_groups", "group 'g' of turn:1:s:t", "does not count"),
    Planted("DELETE FROM lash_secrets WHERE name = 'waits'", "the secret of the waits", "missing"),
    Planted("DELETE FROM lash_trigger_deliveries", "occurrence", "its deliveries"),
)
WRONG_REFERENCE: Final = (
    Planted(
        f"UPDATE lash_sessions SET leaf_node_id = 'x' WHERE session_key = {_KEY}", "session 's'", "not at its place"
    ),
    Planted(
        f"UPDATE lash_nodes SET parent_node_id = 'x' WHERE session_key = {_KEY} AND depth = 1",
        "session 's'",
        "below its parent",
    ),
    Planted("UPDATE lash_runs SET ceiling = ceiling + 1", "session 'fork'", "hole"),
    Planted(
        f"UPDATE lash_sessions SET checkpoint_ref = 'x' WHERE session_key = {_KEY}", "session 's'", "another checkpoint"
    ),
    Planted("UPDATE lash_source_keys SET batch_id = 'x' WHERE state = 'pending'", "session 's'", "has lost its batch"),
    Planted(
        "UPDATE lash_effects SET scope_id = 'process:x' WHERE replay_key = 'search'",
        "effect search",
        "not that of its owner",
    ),
    Planted("UPDATE lash_trigger_deliveries SET process_id = 'x'", "occurrence", "unknown process"),
    Planted(
        "UPDATE lash_trigger_subscriptions SET owner_session_id = 'x' WHERE key = 'k'", "trigger k", "does not exist"
    ),
    Planted("UPDATE lash_attachments SET byte_len = byte_len + 1", "session 's'", "no matching byte guard"),
)
WRONG_HASH: Final = (
    Planted(
        f"UPDATE lash_components SET hash = 'x' WHERE session_key = {_KEY}", "session 's'", "contradicts its revisions"
    ),
    Planted("UPDATE lash_blobs SET size = size + 1", "bytes", "damaged"),
    Planted("UPDATE lash_records SET size = size + 1", "record 'ann' in collection 'users'", "damaged"),
    Planted("UPDATE lash_artifacts SET size = size + 1", "artifact", "damaged"),
    Planted("UPDATE lash_attachment_bytes SET size = size + 1", "bytes of attachment", "damaged"),
    Planted("UPDATE lash_processes SET registration_hash = 'x'", "process 'research-7'", "registration_hash"),
    Planted("UPDATE lash_process_events SET payload_hash = 'x'", "process 'research-7'", "payload_hash"),
    Planted("UPDATE lash_processes SET start_payload_hash = 'x'", "process 'begun-1'", "payload_hash"),
    Planted("UPDATE lash_processes SET end_payload_hash = 'x'", "process 'begun-1'", "payload_hash"),
    Planted("UPDATE lash_effects SET envelope_hash = 'x'", "effect 'e'", "envelope_hash"),
    Planted("UPDATE lash_trigger_subscriptions SET fingerprint = 'x'", "trigger 'k'", "fingerprint"),
    Planted("UPDATE lash_trigger_occurrences SET request_hash = 'x'", "occurrence", "request_hash"),
    Planted("UPDATE lash_waits SET key_id = 'x' || key_id", "wait 'x", "key_id"),
    Planted("UPDATE lash_checkpoints SET checkpoint_ref = 'x'", "checkpoint 2 of session 's'", "not the one that was"),
)
WRONG_COUNTER: Final = (
    Planted("UPDATE lash_sessions SET node_count = node_count + 1", "session 's'", "it counts"),
    Planted("UPDATE lash_sessions SET user_message_count = user_message_count + 1", "session 's'", "it counts"),
    Planted("UPDATE lash_sessions SET node_seq = 0", "session 's'", "beyond its count"),
    Planted("UPDATE lash_sessions SET segment_count = 0", "session 's'", "beyond its count"),
    Planted("UPDATE lash_session_ids SET revision = 99", "session 's'", "below the first one"),
    Planted("UPDATE lash_session_ids SET fencing = 99", "session 's'", "below the first one"),
    Planted("UPDATE lash_usage_totals SET input_tokens = input_tokens + 1", "session 's'", "not the sums"),
    Planted("UPDATE lash_processes SET last_sequence = last_sequence + 1", "process 'research-7'", "not numbered"),
    Planted("UPDATE lash_effect_groups SET members = members + 1", "group 'g'", "does not count"),
    Planted(
        "UPDATE lash_batches SET claim_lease_fencing = 99 WHERE claim_token IS NOT NULL",
        "session 's'",
        "claimed by no lease",
    ),
    Planted(
        "UPDATE lash_batches SET available_at_ms = 9223372036854775807 WHERE claim_token IS NULL",
        "session 's'",
        "parked without a turn",
    ),
)
WRONG_ORDER: Final = (
    Planted(
        f"UPDATE lash_nodes SET begins_branch = NOT begins_branch WHERE session_key = {_KEY} AND depth = 1",
        "session 's'",
        "below its parent",
    ),
    Planted(f"UPDATE lash_nodes SET kind = 'plugin:x' WHERE session_key = {_KEY}", "node 'a' of session 's'", "kind"),
    Planted(f"UPDATE lash_nodes SET seq = 1 WHERE session_key = {_KEY}", "session 's'", "the same number"),
    Planted("UPDATE lash_frames SET position = position + 1", "session 's'", "without a gap"),
    Planted(
        "UPDATE lash_process_events SET sequence = sequence + 1 WHERE sequence = 2",
        "process 'research-7'",
        "not numbered",
    ),
    Planted("UPDATE lash_trigger_deliveries SET position = position + 5", "occurrence", "missing"),
    Planted("UPDATE lash_schedules SET last_tick_ms = next_tick_ms", "schedule 'digest'", "not after its last"),
    Planted("UPDATE lash_batches SET lane = 'command'", "batch", "lane"),
)
ORPHAN: Final = (
    Planted(
        f"DELETE FROM lash_processes WHERE process_key = {_RUN}", "table lash_process_events", "rows without an owner"
    ),
    Planted("DELETE FROM lash_sessions WHERE session_id = 's'", "table lash_checkpoints", "rows without an owner"),
    Planted("DELETE FROM lash_trigger_occurrences", "table lash_trigger_deliveries", "rows without an owner"),
    Planted("DELETE FROM lash_segments", "table lash_nodes", "rows without an owner"),
    Planted("DELETE FROM lash_attachment_fences", "table lash_attachment_bytes", "rows without an owner"),
)
UNREADABLE: Final = (
    # An index reads the relation, so the databases refuse what is not JSON.
    Planted("UPDATE lash_sessions SET relation = '[]'", "session 's'", ""),
    *(
        Planted(
            f"UPDATE {table} SET {column} = '{{'" + (" WHERE packed IS NULL" if table == "lash_nodes" else ""),
            where,
            "",
        )
        for table, column, where in (
            ("lash_sessions", "config", "session 's'"),
            ("lash_nodes", "body", "node 'a' of session 's'"),
            ("lash_frames", "body", "frame"),
            ("lash_checkpoints", "turn_state", "checkpoint 2 of session 's'"),
            ("lash_turns", "result", "turn 't' of session"),
            ("lash_turns", "trace", "turn 't' of session"),
            ("lash_batches", "payloads", "batch"),
            ("lash_dead_letters", "payloads", "dead letter"),
            ("lash_dead_letters", "error", "dead letter"),
            ("lash_processes", "registration", "process 'research-7'"),
            ("lash_processes", "projection", "process 'research-7'"),
            ("lash_process_events", "payload", "process 'research-7'"),
            ("lash_processes", "start_payload", "process 'begun-1'"),
            ("lash_processes", "end_payload", "process 'begun-1'"),
            ("lash_processes", "end_wake", "process 'begun-1'"),
            ("lash_effects", "envelope", "effect 'e'"),
            ("lash_waits", "scope", "wait"),
            ("lash_waits", "identity", "wait"),
            ("lash_waits", "ask", "wait"),
            ("lash_trigger_subscriptions", "definition", "trigger 'k'"),
            ("lash_trigger_occurrences", "request", "occurrence"),
            ("lash_trigger_occurrences", "report", "occurrence"),
            ("lash_trigger_receipts", "answer", "receipt 'o'"),
            ("lash_schedules", "definition", "schedule 'digest'"),
        )
    ),
)
KINDS: Final = {
    "missing": MISSING,
    "wrong reference": WRONG_REFERENCE,
    "wrong hash": WRONG_HASH,
    "wrong counter": WRONG_COUNTER,
    "wrong order": WRONG_ORDER,
    "orphan": ORPHAN,
    "unreadable": UNREADABLE,
}
QUICK: Final = (
    MISSING[0],
    WRONG_REFERENCE[2],
    WRONG_HASH[4],
    WRONG_COUNTER[6],
    WRONG_ORDER[1],
    ORPHAN[2],
    UNREADABLE[-1],
)
"""One of each kind; they can be planted together."""

CHANGES: Final = {
    "text": "{column} = {column} || '{{'",
    "integer": "{column} = {column} + 1000003",
    "bytes": "{column} = coalesce(substr({column}, 2), {column})",
}
"""How a column of each kind is changed; rows that were different stay different."""


def is_time(column: str) -> bool:
    """Return whether a column holds a time, which can be any."""
    return column.endswith("_at_ms") or column in {"paused_until_ms", "next_fire_ms", "next_tick_ms", "deadline_ms"}


FREE: Final = frozenset(
    {
        # Names, labels and sizes that callers choose.
        *("lash_sessions.name", "lash_sessions.model", "lash_sessions.cwd", "lash_artifacts.namespace"),
        *("lash_attachments.width", "lash_attachments.height", "lash_attachments.label", "lash_attachments.owner_id"),
        *("lash_grants.session_id", "lash_grants.frame_id", "lash_grants.kind", "lash_grants.label"),
        *("lash_records.collection", "lash_records.key", "lash_records.index_1", "lash_records.index_2"),
        *("lash_dead_letters.reason", "lash_batches.merge_key", "lash_effect_groups.size"),
        *("lash_limits.name", "lash_limits.key", "lash_limits.interval_us", "lash_limits.burst"),
        *("lash_limits.free_at_us", "lash_limit_lines.name", "lash_limit_lines.key", "lash_limit_lines.concurrency"),
        *("lash_limit_lines.check_at_ms", "lash_limit_lines.used_at_ms", "lash_limit_places.name"),
        *("lash_limit_places.key", "lash_limit_places.holder", "lash_limit_places.place", "lash_limit_places.state"),
        *("lash_limit_places.fencing", "lash_limit_places.until_ms", "lash_limit_places.since_ms"),
        *("lash_acts.operator", "lash_acts.verb", "lash_acts.target", "lash_acts.session_id", "lash_acts.process_id"),
        *("lash_acts.at_ms", "lash_acts.error", "lash_acts.outcome", "lash_acts.act_id", "lash_acts.position"),
        # Keys to which nothing else refers.
        *("lash_turns.turn_id", "lash_trigger_receipts.operation_id", "lash_process_events.replay_key"),
        *("lash_processes.start_replay_key", "lash_processes.end_replay_key"),
        *("lash_dead_letters.batch_id", "lash_trigger_subscriptions.subscription_id", "lash_activity_tails.epoch"),
        *("lash_process_change_epoch.epoch", "lash_process_change_epoch.system_id", "lash_process_change_epoch.place"),
        # Tokens of holders, and counters that may have any higher value.
        *("lash_attachment_fences.token", "lash_attachment_fences.version", "lash_batches.claim_count"),
        *("lash_batches.failure_count", "lash_dead_letters.failure_count", "lash_process_leases.crash_count"),
        *("lash_batches.priority", "lash_dead_letters.priority"),
        *("lash_batches.claim_id", "lash_batches.claim_token", "lash_dead_letters.claim_token"),
        *("lash_session_leases.owner_id", "lash_session_leases.incarnation_id", "lash_session_leases.token"),
        *("lash_session_leases.fencing", "lash_process_leases.fencing", "lash_process_leases.wake_seq"),
        *("lash_session_leases.wake_seq", "lash_session_leases.waiting_for", "lash_batches.wake_session_id"),
        "lash_session_wakes.wake_id",
        *("lash_sessions.agent", "lash_sessions.expires_at_ms"),
        *("lash_sessions.segment_count", "lash_sessions.node_seq", "lash_sessions.wait_revocations"),
        *("lash_dead_letters.claim_count", "lash_effects.fencing", "lash_trigger_deliveries.attempts"),
        *("lash_effects.began_at_ms", "lash_effects.attempt", "lash_effects.tries", "lash_effects.worker"),
        "lash_effects.traceparent",
        *("lash_trigger_subscriptions.revision", "lash_schedules.revision", "lash_wait_changes.number"),
        "lash_records.version",
        *("lash_activity_tails.position", "lash_activity_tails.written_bytes"),
        # Numbers of which only the order counts, and it stays.
        *("lash_batches.seq", "lash_dead_letters.seq", "lash_dead_letters.place", "lash_process_changes.seq"),
        *("lash_process_events.seq", "lash_processes.end_seq"),
        *("lash_schedules.schedule_key", "lash_trigger_subscriptions.subscription_key", "lash_usage.ordinal"),
        *("lash_sessions.changed", "lash_session_ids.changed"),
        # Read as a session, by the command, and not as rows.
        *("lash_sessions.first_user_message", "lash_activity.body"),
        # Any number is true.
        *("lash_segments.closed", "lash_wait_changes.id", "lash_process_change_epoch.one"),
        *("lash_batches.names_agent", "lash_dead_letters.names_agent"),
    }
)
"""Columns in which any value, or any higher one, is valid, or which are checked elsewhere."""
REMOVABLE: Final = frozenset(
    {
        *("lash_activity", "lash_artifacts", "lash_attachments", "lash_dead_letters", "lash_grants", "lash_schedules"),
        *("lash_records", "lash_trigger_receipts", "lash_trigger_subscriptions", "lash_turns", "lash_wait_changes"),
        *("lash_waits", "lash_session_wakes", "lash_limits", "lash_limit_lines", "lash_limit_places", "lash_acts"),
        # Bytes may be outside the database; the command reads every attachment.
        "lash_attachment_bytes",
        # PostgreSQL begins a new epoch when it opens a storage without one.
        "lash_process_change_epoch",
        # They only remember what was pruned or deleted.
        *("lash_trigger_tombstones", "lash_process_tombstones", "lash_process_change_floor"),
    }
)
"""Tables from which a call may have removed everything."""
