"""The lines of an exported session; docs/export-format.md describes them for people.

Each is one JSON object with its ``kind`` first. Whatever changes here changes the format: a new field needs a new
version, since a reader refuses what it does not know.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from lash.base.codec import canonical
from lash.base.compression import BlobRef
from lash.base.shapes import decoder
from lash.errors import InvalidInput
from lash.model.attachment import AttachmentOwner
from lash.model.queue import Delivery, Payload, Slot
from lash.model.session.checkpoint import TurnState
from lash.model.session.frame import AgentFrame
from lash.model.session.message import AttachmentRef
from lash.model.session.node import BytesEntry, ErasedEntry, MessageEntry, Node
from lash.model.session.session import SessionConfig, SessionRelation
from lash.model.session.usage import UsageEntry
from lash.model.value import JSON, Count, JSONObject, Positive
from lash.plan.effect.effect import first_difference

FORMAT: Final = "lash.session"
VERSION: Final = 1
"""The version of a file that older readers know, too."""
RECORD_VERSION: Final = 2
"""The version of a file with records, an owner, labels, metadata or an expiry."""
ENTRY_VERSION: Final = 3
"""The version of a file with erased nodes, bytes of plugins or native items."""
VERSIONS: Final = (VERSION, RECORD_VERSION, ENTRY_VERSION)
"""The versions that this lash reads."""
MAX_LINE_BYTES: Final = 128 * 1024 * 1024
"""The longest line that an import reads by default."""
PIECE_BYTES: Final = 768 * 1024
"""How many bytes one data line holds, so that large attachments never make long lines."""


class _Line(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind"
):
    """One line; ``kind`` says which."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of lines of each kind."""

    frames: Count = 0
    nodes: Count = 0
    blobs: Count = 0
    usage: Count = 0
    attachments: Count = 0
    batches: Count = 0
    records: Positive | UnsetType = UNSET
    """Left out if there are none."""


class HeaderLine(_Line, frozen=True, kw_only=True, tag="header"):
    """The version of the file, and its source. ``revision`` is None for a session without a commit."""

    format: str
    version: int
    session_id: str
    created_at_ms: int
    counts: Counts
    revision: int | None = None
    updated_at_ms: int | None = None


class MetaLine(_Line, frozen=True, kw_only=True, tag="meta"):
    """The metadata, without the id."""

    name: str
    created_at_ms: int
    relation: SessionRelation
    model: str = ""
    cwd: str | None = None
    owner: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    metadata: JSONObject = msgspec.field(default_factory=dict)
    expires_at_ms: int | None = None

    @property
    def has_labels(self) -> bool:
        """Whether it has a field that only newer readers know."""
        return self.owner is not None or bool(self.labels or self.metadata) or self.expires_at_ms is not None


class HeadLine(_Line, frozen=True, kw_only=True, tag="head"):
    """The head. A session without a commit has none."""

    config: SessionConfig
    current_frame_id: str | None = None
    leaf_node_id: str | None = None


class FrameLine(_Line, frozen=True, kw_only=True, tag="frame"):
    """One frame, in the order of the list; its execution state is a blob."""

    frame: AgentFrame


class NodeLine(_Line, frozen=True, kw_only=True, tag="node"):
    """One live node. Parents come first; ``place`` is given only if that is not the order of insertion."""

    node: Node
    place: Positive | None = None

    @property
    def has_newer_entry(self) -> bool:
        """Whether its entry is of a kind, or has a field, that readers of version 2 do not know."""
        entry = self.node.entry
        return isinstance(entry, BytesEntry | ErasedEntry) or (
            isinstance(entry, MessageEntry) and entry.native is not None
        )


class CheckpointLine(_Line, frozen=True, kw_only=True, tag="checkpoint"):
    """The state of the head, its components by the refs of their blobs."""

    ref: BlobRef
    turn_state: TurnState
    components: dict[str, BlobRef]
    plugin_snapshot_revision: Count | None = None


class BlobLine(_Line, frozen=True, kw_only=True, tag="blob"):
    """A blob of the checkpoint or of a frame; its bytes are in the data lines that follow."""

    ref: BlobRef


class UsageLine(_Line, frozen=True, kw_only=True, tag="usage"):
    """The sum for one source and model, in the order in which each was first seen."""

    entry: UsageEntry


class RecordLine(_Line, frozen=True, kw_only=True, tag="record"):
    """One record of the session, by collection and key; its value is ``json``, or bytes in ``base64``."""

    collection: str
    key: str
    json: JSON | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    index: dict[str, str] = msgspec.field(default_factory=dict)
    expires_at_ms: int | None = None


class AttachmentLine(_Line, frozen=True, kw_only=True, tag="attachment"):
    """One attachment; its bytes are in the data lines that follow."""

    ref: AttachmentRef
    committed: bool
    owner: AttachmentOwner | None = None


class BatchLine(_Line, frozen=True, kw_only=True, tag="batch"):
    """Queued work, in its order."""

    payloads: tuple[Payload, ...]
    delivery: Delivery
    slot: Slot
    source_key: str | None = None
    merge_key: str | None = None
    available_at_ms: Count = 0
    priority: Count = 0


class DataLine(_Line, frozen=True, kw_only=True, tag="data"):
    """Bytes of the blob or attachment above: as text if all of them are UTF-8, otherwise in base64."""

    text: str | None = None
    base64: str | None = None

    @property
    def content(self) -> bytes:
        """The bytes; raises InvalidInput unless exactly one of the two is given."""
        if self.text is not None and self.base64 is None:
            return self.text.encode()
        if self.base64 is None or self.text is not None:
            raise InvalidInput("data is either text or base64")
        try:
            return base64.b64decode(self.base64, validate=True)
        except ValueError as error:
            # Letters beyond ASCII raise ValueError, everything else its subclass binascii.Error.
            raise InvalidInput(f"data is not base64: {error}") from None


class EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    """The end of a complete file: the hash of every byte above.

    ``content`` is the hash of the lines that make the session: all but header, data and batches. The data is proved by
    the hashes that name it. Exports of equal sessions, whatever they are called, have the same.
    """

    content: str
    sha256: str


Line: TypeAlias = (
    HeaderLine
    | MetaLine
    | HeadLine
    | FrameLine
    | NodeLine
    | CheckpointLine
    | BlobLine
    | UsageLine
    | RecordLine
    | AttachmentLine
    | BatchLine
    | DataLine
    | EndLine
)

_encoder: Final = msgspec.json.Encoder()
_plain: Final = msgspec.json.Decoder[object]()


def encode_line(line: Line) -> bytes:
    """Return the line with its newline. Keys of JSON objects keep their order, except in frames, which hold sets."""
    return (canonical(line) if isinstance(line, FrameLine) else _encoder.encode(line)) + b"\n"


def decode_line(raw: bytes) -> Line:
    """Read a line, or raise InvalidInput; an unknown field is refused too."""
    try:
        line: Line = decoder(Line).decode(raw)
        again = encode_line(line)
        if again != raw:
            _require_same(_plain.decode(raw), _plain.decode(again))
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, OverflowError) as error:
        raise InvalidInput(str(error)) from None
    return line


def _require_same(given: object, understood: object) -> None:
    """Raise InvalidInput with the first field that this version would not write as it was given."""
    difference = first_difference(given, understood)
    if difference is not None:
        raise InvalidInput(f"there is something in it that this version does not know: {difference[0]}")


def data_line_count(byte_count: int) -> int:
    """Return how many data lines so many bytes need."""
    return -(-byte_count // PIECE_BYTES)


def data_lines(content: bytes) -> Iterator[DataLine]:
    """Return the lines that hold the bytes."""
    if 0 < len(content) <= PIECE_BYTES:
        try:
            yield DataLine(text=content.decode())
        except UnicodeDecodeError:
            yield DataLine(base64=base64.b64encode(content).decode())
        return
    for start in range(0, len(content), PIECE_BYTES):
        yield DataLine(base64=base64.b64encode(content[start : start + PIECE_BYTES]).decode())
