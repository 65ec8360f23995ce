"""The identity of a turn's commit: a hash that is equal for a retry of the same commit.

The hashed fields are listed one by one. Fields that may differ between retries are left out: clocks, fences, the
expected revision, claim tokens, and the ids of nodes, messages and parts. Parents of nodes are included as positions.
Fields that hold their default are left out too, so that adding a field later does not change existing identities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeVar

import msgspec

from lash.base.codec import decode
from lash.base.compression import BlobRef
from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData, InvalidInput, TurnConflict
from lash.model.session.checkpoint import FRAME_PREFIX
from lash.model.session.commit import (
    Append,
    AppendResult,
    Commit,
    CommitResult,
    GraphDelta,
    ReplaceFull,
    Unchanged,
)
from lash.model.session.frame import AgentFrame
from lash.model.session.node import MessageEntry, Node
from lash.plan.record import EncodedChange
from lash.plan.sealed import TURN_RESULT

_DOMAIN: Final = b"lash.turn-commit.v1\0"
_APPEND_DOMAIN: Final = b"lash.turn-append.v1\0"
"""Keeps an append apart from a commit of the same nodes: the two have different results."""
_EARLIER: Final = "earlier"
"""Stands for any node of an earlier commit, whose id may differ between retries."""
_encoder: Final = msgspec.json.Encoder(order="sorted")
Result = TypeVar("Result", CommitResult, AppendResult)


class TurnRow(msgspec.Struct, frozen=True, array_like=True):
    """The commit that a turn already has."""

    commit_hash: str
    result: Annotated[str, TURN_RESULT]


def commit_hash(commit: Commit, components: Mapping[str, BlobRef], records: Sequence[EncodedChange] = ()) -> str:
    """Return the identity of the commit; ``components`` has the ref of every component, those of frames included."""
    projection: dict[str, object] = {
        "config": commit.config,
        "frames": [_frame(frame, components) for frame in commit.frames],
        "current_frame": commit.current_frame_id,
        "graph": _graph(commit.graph),
        "turn_state": commit.checkpoint.turn_state,
        "plugin_snapshot_revision": commit.checkpoint.plugin_snapshot_revision,
        "components": {key: ref for key, ref in components.items() if not key.startswith(FRAME_PREFIX)},
        "usage": commit.usage,
    }
    if commit.completions:
        projection["consumed"] = sorted(batch_id for each in commit.completions for batch_id in each.batch_ids)
    if commit.attachments:
        projection["attachments"] = sorted(set(commit.attachments))
    if records:
        projection["records"] = [_record(change) for change in records]
    return hashlib.sha256(_DOMAIN + _encoder.encode(projection)).hexdigest()


def append_hash(nodes: Sequence[Node]) -> str:
    """Return the identity of an append of these nodes, each of which follows the one before it."""
    return hashlib.sha256(_APPEND_DOMAIN + _encoder.encode([_content(node) for node in nodes])).hexdigest()


def replay(session_id: str, turn_id: str, row: TurnRow, own_hash: str, shape: type[Result]) -> Result:
    """Return the first result of a repeated commit or append, or raise TurnConflict if the content differs."""
    if row.commit_hash != own_hash:
        raise TurnConflict(session_id, turn_id)
    return decode(row.result, shape, f"the result of turn {turn_id!r}")


def check_result(text: str) -> None:
    """Raise CorruptData if a stored result is neither that of a commit nor that of an append."""
    _any_result(text, "its result")


def revision_of(turn_id: str, row: TurnRow) -> int:
    """Return the revision that the commit or append of a turn published."""
    return _any_result(row.result, f"the result of turn {turn_id!r}").revision


def check_turn_choice(revision: object, turn_id: object) -> None:
    """Raise InvalidInput unless at most one of a revision and a turn is named, and it can exist."""
    if revision is not None and turn_id is not None:
        raise InvalidInput("expected revision or turn_id, got both; leave one out")
    if revision is not None:
        check_integer("revision", revision, at_least=0)
    if turn_id is not None:
        check_identifier("turn_id", turn_id)


def _any_result(text: str, what: str) -> AppendResult | CommitResult:
    try:
        return decode(text, AppendResult, what)
    except CorruptData:
        return decode(text, CommitResult, what)


def _frame(frame: AgentFrame, components: Mapping[str, BlobRef]) -> dict[str, object]:
    return {
        "frame_id": frame.frame_id,
        "previous_frame_id": frame.previous_frame_id,
        "status": frame.status,
        "reason": frame.reason,
        "caused_by": frame.caused_by,
        "assignment": frame.assignment,
        "protocol_turn_options": frame.protocol_turn_options,
        "execution_state": components.get(FRAME_PREFIX + frame.frame_id),
    }


def _record(change: EncodedChange) -> dict[str, object]:
    """Return a change of a record without the version that it expects, which may differ between retries."""
    name, put = change.name, change.put
    projection: dict[str, object] = {
        "own": name.session_id is not None,
        "collection": name.collection,
        "key": name.key,
    }
    if put is not None:
        projection |= {
            "form": put.value.form,
            "hash": put.value.blob.ref,
            "index": put.fields,
            "ttl_ms": put.ttl_ms,
            "expires_at_ms": put.expires_at_ms,
        }
    return projection


def _graph(delta: GraphDelta) -> dict[str, object]:
    if isinstance(delta, Unchanged):
        moved = {} if isinstance(delta.leaf_node_id, msgspec.UnsetType) else {"leaf": delta.leaf_node_id and _EARLIER}
        return {"delta": "unchanged", **moved}
    kind = "append" if isinstance(delta, Append) else "replace_full"
    return {"delta": kind, "nodes": _nodes(delta.nodes), "leaf": _leaf(delta)}


def _nodes(nodes: tuple[Node, ...]) -> list[dict[str, object]]:
    index = {node.node_id: position for position, node in enumerate(nodes)}
    return [
        {
            "parent": None if node.parent_node_id is None else index.get(node.parent_node_id, _EARLIER),
            **_content(node),
        }
        for node in nodes
    ]


def _content(node: Node) -> dict[str, object]:
    return {"entry": _entry(node), "agent_frame_id": node.agent_frame_id, "caused_by": node.caused_by}


def _entry(node: Node) -> object:
    if not isinstance(node.entry, MessageEntry):
        return node.entry
    message = node.entry.message
    parts = tuple([msgspec.structs.replace(part, id="") for part in message.parts])
    return msgspec.structs.replace(node.entry, message=msgspec.structs.replace(message, id="", parts=parts))


def _leaf(delta: Append | ReplaceFull) -> object:
    """Return the leaf as a position among the new nodes."""
    if isinstance(delta.leaf_node_id, msgspec.UnsetType):
        return len(delta.nodes) - 1
    positions = (position for position, node in enumerate(delta.nodes) if node.node_id == delta.leaf_node_id)
    return None if delta.leaf_node_id is None else next(positions, _EARLIER)
