"""Verifies the relations between the lines of a file."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from lash.base.codec import content_hash
from lash.base.limits import MAX_CONTENT_BYTES
from lash.base.shapes import read_json
from lash.errors import CorruptData, InvalidInput
from lash.model.session.checkpoint import CheckpointManifest
from lash.model.session.node import Node
from lash.model.session.usage import TokenUsage
from lash.plan.session.checkpoint import manifest_ref
from lash.transfer.lines import FORMAT, VERSIONS, AttachmentLine, BlobLine, CheckpointLine, HeaderLine
from lash.transfer.snapshot import Snapshot


class _Probe(msgspec.Struct, frozen=True):
    """The version in the first line of a file, whatever else is in it."""

    format: object = None
    version: object = None


class Collector:
    """Joins the data lines of one blob or attachment."""

    def __init__(self) -> None:
        self._line: BlobLine | AttachmentLine | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    def begin(self, line: BlobLine | AttachmentLine) -> None:
        self._line = line

    def add(self, piece: bytes) -> None:
        if self._line is None:
            raise InvalidInput("a data line cannot stand here")
        self._size += len(piece)
        if self._size > MAX_CONTENT_BYTES:
            raise InvalidInput(f"the data above is longer than {MAX_CONTENT_BYTES:,} bytes")
        self._pieces.append(piece)

    def end(self) -> tuple[BlobLine | AttachmentLine | None, bytes]:
        """Return the owner of the data, if there is one, and the bytes; then start with the next."""
        ended = self._line, b"".join(self._pieces)
        self._line, self._pieces, self._size = None, [], 0
        return ended


def check_version(raw: bytes) -> None:
    """Raise InvalidInput if the first line is not that of a file which this version reads."""
    try:
        probe = read_json(raw, _Probe)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        probe = _Probe()
    if probe.format != FORMAT:
        raise InvalidInput("expected an exported session: write one with lash sessions export")
    if probe.version not in VERSIONS:
        known = f"this lash reads versions {VERSIONS[0]} to {VERSIONS[-1]}"
        raise InvalidInput(f"the file has version {probe.version!r:.80}; {known}: import it with a newer lash")


def require_hash(expected: str, content: bytes) -> None:
    """Raise CorruptData if the bytes do not have this hash."""
    if content_hash(content) != expected:
        raise CorruptData(f"the data above does not have the hash {expected!r:.80}")


def check_whole(header: HeaderLine, snapshot: Snapshot) -> None:
    """Raise InvalidInput if the lines of a file do not form one session."""
    if header.counts != snapshot.counts:
        raise InvalidInput(f"the header promises {header.counts}, the file has {snapshot.counts}")
    if header.version != snapshot.version:
        raise InvalidInput(f"a file of this content has version {snapshot.version}, not {header.version}")
    if header.created_at_ms != snapshot.meta.created_at_ms:
        raise InvalidInput("header and meta name different times of creation")
    named = snapshot.frames or snapshot.nodes or snapshot.blobs or snapshot.usage
    if snapshot.head is None and (named or snapshot.checkpoint is not None):
        raise InvalidInput("there is no head line, so there can be no frames, nodes, checkpoint or usage")
    if (snapshot.head is None) is not (snapshot.checkpoint is None):
        raise InvalidInput("a head and a checkpoint belong together")
    if snapshot.checkpoint is not None:
        _check_blobs(snapshot, snapshot.checkpoint)
    _check_lists(snapshot)
    leaf = None if snapshot.head is None else snapshot.head.leaf_node_id
    if leaf is not None and all(line.node.node_id != leaf for line in snapshot.nodes):
        raise InvalidInput(f"the leaf {leaf!r:.80} is not one of the nodes")


def nodes_in_order(snapshot: Snapshot) -> tuple[Node, ...]:
    """Return the nodes in the order of insertion; raise InvalidInput if their places are not an order."""
    places = [line.place for line in snapshot.nodes if line.place is not None]
    if not places:
        return tuple(line.node for line in snapshot.nodes)
    if sorted(places) != list(range(1, len(snapshot.nodes) + 1)):
        raise InvalidInput("expected the places of the nodes to be 1, 2, … without a gap")
    by_place = dict(zip(places, snapshot.nodes, strict=True))
    return tuple(by_place[place].node for place in sorted(places))


def _check_lists(snapshot: Snapshot) -> None:
    """Raise InvalidInput if a storage would keep a list in another order."""
    keys = () if snapshot.checkpoint is None else tuple(snapshot.checkpoint.components)
    attachments = tuple(line.ref.id for line in snapshot.attachments)
    records = [(line.collection, line.key) for line in snapshot.records]
    if any(left >= right for left, right in pairwise(records)):
        raise InvalidInput("records must stand in the order of their collections and keys, each once")
    for what, names in (
        ("components", keys),
        ("blobs", tuple(snapshot.blobs)),
        ("attachments", attachments),
    ):
        if list(names) != sorted(names):
            raise InvalidInput(f"{what} must stand in the order of their names")
    pairs = [(line.entry.source, line.entry.model) for line in snapshot.usage]
    if len(set(pairs)) < len(pairs) or any(line.entry.usage == TokenUsage() for line in snapshot.usage):
        raise InvalidInput("usage must be one sum for each source and model, and none of nothing")


def _check_blobs(snapshot: Snapshot, checkpoint: CheckpointLine) -> None:
    states = [line.frame.execution_state_ref for line in snapshot.frames]
    wanted = {*checkpoint.components.values(), *(ref for ref in states if ref is not None)}
    if wanted != snapshot.blobs.keys():
        odd = min(str(ref) for ref in wanted ^ snapshot.blobs.keys())
        raise InvalidInput(f"blob {odd} is named and not there, or there and not named")
    if any(line.frame.execution_state is not None for line in snapshot.frames):
        raise InvalidInput("the execution state of a frame must be a blob")
    manifest = CheckpointManifest(
        turn_state=checkpoint.turn_state,
        plugin_snapshot_revision=checkpoint.plugin_snapshot_revision,
        components=dict(sorted(checkpoint.components.items())),
    )
    if manifest_ref(manifest) != checkpoint.ref:
        raise InvalidInput("the checkpoint is not the one that its ref names")
