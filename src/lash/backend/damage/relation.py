"""Contradictions between rows: the query that finds each, what it means, and what to do."""

from __future__ import annotations

from typing import Final, NamedTuple

from lash.backend.damage import remedy

_LIST: Final = "its conversation is whole; export it, remove it and import it: an import counts again"
_ROWS: Final = "no call of lash reads these rows; delete them with SQL while no worker runs"


class Relation(NamedTuple):
    """One kind of contradiction. ``where`` and ``problem`` are templates of the subject and the detail."""

    query: str
    where: str
    problem: str
    remedy: str


RELATIONS: Final = (
    Relation("damage_session_ids", "session {subject!r}", "{detail}", remedy.SESSION),
    Relation(
        "damage_session_labels",
        "session {subject!r}",
        "lists do not find it by {detail}",
        "write its owner and labels again with session.edit",
    ),
    Relation("damage_session_leases", "session {subject!r}", "{detail}", remedy.SESSION),
    Relation("damage_leaves", "session {subject!r}", "its head {detail!r} is not at its place", remedy.SESSION),
    Relation("damage_node_counts", "session {subject!r}", "it counts {detail}", _LIST),
    Relation(
        "damage_node_places", "session {subject!r}", "node {detail!r} does not lie below its parent", remedy.SESSION
    ),
    Relation("damage_node_numbers", "session {subject!r}", "{detail}", remedy.SESSION),
    Relation(
        "damage_segments", "session {subject!r}", "segment {detail} leaves a segment that is missing", remedy.SESSION
    ),
    Relation("damage_inherited", "session {subject!r}", "the path that it inherits has a hole", remedy.SESSION),
    Relation("damage_frames", "session {subject!r}", "{detail}", remedy.SESSION),
    Relation("damage_checkpoints", "session {subject!r}", "{detail}", remedy.SESSION),
    Relation(
        "damage_components", "session {subject!r}", "component {detail!r} contradicts its revisions", remedy.SESSION
    ),
    Relation("damage_usage", "session {subject!r}", "the totals of {detail} are not the sums of its ledger", _LIST),
    Relation("damage_ledgers", "session {subject!r}", "the ledger of {detail} contradicts its totals", _LIST),
    Relation(
        "damage_source_keys", "session {subject!r}", "batch {detail!r} has not reserved its source key", remedy.QUEUE
    ),
    Relation("damage_pending_keys", "session {subject!r}", "source key {detail!r} has lost its batch", remedy.QUEUE),
    Relation(
        "damage_claims",
        "session {subject!r}",
        "batch {detail!r} is queued twice, claimed by no lease, or parked without a turn",
        remedy.QUEUE,
    ),
    Relation(
        "damage_byte_guards",
        "session {subject!r}",
        "attachment {detail} has no matching byte guard",
        "put the attachment again: that writes its guard",
    ),
    Relation(
        "damage_event_numbers", "process {subject!r}", "its events are not numbered from 1 to {detail}", remedy.PROCESS
    ),
    Relation("damage_process_leases", "process {subject!r}", "{detail}", remedy.PROCESS),
    Relation("damage_wakes", "process {subject!r}", "event {detail} and its wake do not match", remedy.PROCESS),
    Relation(
        "damage_queued_wakes",
        "process {subject!r}",
        "the wake of event {detail} is queued and has no batch",
        "send the session a message instead, then acknowledge it with storage.events.acknowledge_wake",
    ),
    Relation(
        "damage_changes",
        "process {subject!r}",
        "its entries in the feed of changes are not in the order of its log",
        remedy.FEED,
    ),
    Relation("damage_tombstones", "{subject}", "it exists beside its tombstone", _ROWS),
    Relation(
        "damage_effect_groups",
        "group {detail!r} of {subject}",
        "it does not count the effects that it has",
        remedy.EFFECTS,
    ),
    Relation("damage_scopes", "{subject}", "its scope {detail!r} is not that of its owner", remedy.PROCESS),
    Relation(
        "damage_secrets",
        "the secret of the waits",
        "it is missing, so no key is valid",
        remedy.SIGNING_KEYS,
    ),
    Relation(
        "damage_epochs",
        "the feed of changes",
        "it has no epoch, so no cursor is valid",
        "restore lash_process_change_epoch from a backup",
    ),
    Relation(
        "damage_deliveries",
        "occurrence {subject!r}",
        "{detail}",
        remedy.OCCURRENCE,
    ),
    Relation("damage_owners", "{subject}", "its session {detail!r} does not exist", remedy.TRIGGER),
    Relation("damage_schedules", "schedule {subject!r}", "its next tick is not after its last", remedy.TRIGGER),
    Relation(
        "damage_activity",
        "session {subject!r}",
        "it has activity beyond its last position",
        "lash db prune --only activity --older-than 0s removes it",
    ),
    Relation("damage_orphans", "table {subject}", "rows without an owner: {detail}", _ROWS),
)
"""All kinds, in the order in which they are reported."""
