"""The rows of a storage, read past lash, in the terms of the checker."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

from tests.proof.contention.verdict import Stored, StoredLabels, StoredNode, StoredSession
from tests.raw import Row, raw

_OURS = re.compile(r"\w+\.\d+:\d+")
_NODES = (
    "SELECT s.session_id, n.node_id, n.parent_node_id, n.body FROM lash_nodes AS n"
    " JOIN lash_sessions AS s ON s.session_key = n.session_key"
    " WHERE n.tombstoned_at_ms IS NULL ORDER BY n.session_key, n.seq"
)
_TURNS = (
    "SELECT s.session_id, t.turn_id, t.result FROM lash_turns AS t"
    " JOIN lash_sessions AS s ON s.session_key = t.session_key"
)
_QUEUED = (
    "SELECT s.session_id, b.source_key FROM lash_batches AS b"
    " JOIN lash_sessions AS s ON s.session_key = b.session_key ORDER BY b.seq"
)
_DEAD = (
    "SELECT s.session_id, d.source_key FROM lash_dead_letters AS d"
    " JOIN lash_sessions AS s ON s.session_key = d.session_key"
)
_FENCES = (
    "SELECT 'session:' || s.session_id, l.fencing FROM lash_session_leases AS l"
    " JOIN lash_sessions AS s ON s.session_key = l.session_key"
    " UNION ALL SELECT 'process:' || p.process_id, l.fencing FROM lash_process_leases AS l"
    " JOIN lash_processes AS p ON p.process_key = l.process_key"
)
_EFFECTS = "SELECT scope_id, replay_key, outcome, error FROM lash_effects WHERE status <> 'in_progress'"
_WAITS = "SELECT key_id, resolution FROM lash_waits WHERE resolution IS NOT NULL"
_DELIVERIES = (
    "SELECT o.request, o.occurrence_id, d.process_id FROM lash_trigger_occurrences AS o"
    " LEFT JOIN lash_trigger_deliveries AS d ON d.occurrence_key = o.occurrence_key AND d.state = 'started'"
    " ORDER BY o.occurrence_key, d.position"
)
_LABELS = (
    "SELECT s.session_id, s.owner, s.labels, l.key, l.value FROM lash_sessions AS s"
    " LEFT JOIN lash_session_labels AS l ON l.session_key = s.session_key"
)
_COUNTERS = "SELECT key, version, content FROM lash_records WHERE collection = 'counters'"
_EVENTS = (
    "SELECT p.process_id, e.event_type, e.payload FROM lash_process_log AS e"
    " JOIN lash_processes AS p ON p.process_key = e.process_key ORDER BY p.process_key, e.sequence"
)


async def read_stored(url: str) -> Stored:
    """Return all rows that the checker needs."""
    return Stored(
        sessions=await _sessions(url),
        cells=await _cells(url),
        logs=_logs(await raw(url, _EVENTS)),
        fences=dict(await raw(url, _FENCES)),
        labels=_labels(await raw(url, _LABELS)),
        counters={key: (version, json.loads(bytes(value))) for key, version, value in await raw(url, _COUNTERS)},
    )


async def _sessions(url: str) -> dict[str, StoredSession]:
    nodes: defaultdict[str, list[StoredNode]] = defaultdict(list)
    for session_id, node_id, parent, body in await raw(url, _NODES):
        nodes[session_id].append(StoredNode(node_id, parent, _input(json.loads(body))))
    turns: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for session_id, turn_id, result in await raw(url, _TURNS):
        turns[session_id][turn_id] = json.loads(result)["revision"]
    queued = _keys(await raw(url, _QUEUED))
    dead = _keys(await raw(url, _DEAD))
    return {
        session_id: StoredSession(
            revision,
            leaf,
            tuple(nodes[session_id]),
            turns[session_id],
            tuple(queued[session_id]),
            tuple(dead[session_id]),
        )
        for session_id, revision, leaf in await raw(url, "SELECT session_id, revision, leaf_node_id FROM lash_sessions")
    }


def _input(body: dict[str, Any]) -> str | None:
    """Return what a user said in a node, which is the key of the input in these tests."""
    message = body["entry"].get("message", {})
    if message.get("role") != "user":
        return None
    key: str = message["parts"][0]["content"]
    return key


def _keys(rows: list[Row]) -> defaultdict[str, list[str]]:
    """Return the keys of each session, in order; keys of wakes are left out."""
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for session_id, key in rows:
        if _OURS.fullmatch(str(key)):
            keys[session_id].append(key)
    return keys


async def _cells(url: str) -> dict[str, str]:
    cells = {
        f"effect:{scope}/{key}": _canonical(json.loads(error) if outcome is None else json.loads(outcome)["outcome"])
        for scope, key, outcome, error in await raw(url, _EFFECTS)
    }
    cells |= {f"wait:{key}": _canonical(json.loads(value)["resolution"]) for key, value in await raw(url, _WAITS)}
    started: defaultdict[str, tuple[str, list[str]]] = defaultdict(lambda: ("", []))
    for request, occurrence_id, process_id in await raw(url, _DELIVERIES):
        cell = f"occurrence:{json.loads(request)['idempotency_key']}"
        started[cell] = (occurrence_id, [*started[cell][1], *([] if process_id is None else [process_id])])
    return cells | {cell: json.dumps([name, ids]) for cell, (name, ids) in started.items()}


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _labels(rows: list[Row]) -> dict[str, StoredLabels]:
    held: dict[str, dict[str, str]] = {}
    found_by: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for session_id, owner, labels, key, value in rows:
        held[session_id] = json.loads(labels) | ({} if owner is None else {"": owner})
        if key is not None:
            found_by[session_id][key] = value
    return {session_id: StoredLabels(each, found_by[session_id]) for session_id, each in held.items()}


def _logs(rows: list[Row]) -> dict[str, tuple[str | None, ...]]:
    logs: defaultdict[str, list[str | None]] = defaultdict(list)
    for process_id, event_type, payload in rows:
        logs[process_id].append(json.loads(payload)["payload"] if event_type == "note" else None)
    return {process_id: tuple(log) for process_id, log in logs.items()}
