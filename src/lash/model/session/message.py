"""Messages of users, models and tools."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

from lash.model.causal import CausalRef
from lash.model.value import JSON, Count, Positive, Value, share_default


class Role(enum.StrEnum):
    """The author of a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    EVENT = "event"
    """A background process, in a message that wakes the session."""


class PartKind(enum.StrEnum):
    """What a part of a message is."""

    TEXT = "text"
    """Text of a user, or that the application added."""
    IMAGE = "image"
    """An attachment whose media type is one of images."""
    FILE = "file"
    """Any other attachment."""
    CODE = "code"
    OUTPUT = "output"
    ERROR = "error"
    PROSE = "prose"
    """Text that an agent replied."""
    TOOL_CALL = "tool_call"
    """The arguments of a tool call, as JSON."""
    TOOL_RESULT = "tool_result"
    REASONING = "reasoning"


_TEXTS: Final = (PartKind.TEXT, PartKind.PROSE)


class _PruneState(Value, frozen=True, kw_only=True, tag_field="state"):
    """The state of a part's content after the context was pruned."""


class Intact(_PruneState, frozen=True, kw_only=True, tag="intact"):
    """The content is whole."""


class Cleared(_PruneState, frozen=True, kw_only=True, tag="cleared"):
    """The content was dropped without a trace."""


class Deleted(_PruneState, frozen=True, kw_only=True, tag="deleted"):
    """The content was moved to an archive; a breadcrumb replaces it."""

    breadcrumb: str
    archive_hash: str


class Summarized(_PruneState, frozen=True, kw_only=True, tag="summarized"):
    """The content was moved to an archive; a summary replaces it."""

    summary: str
    archive_hash: str


PruneState: TypeAlias = Intact | Cleared | Deleted | Summarized
INTACT: Final = Intact()


class AttachmentRef(Value, frozen=True, kw_only=True):
    """A file of a user, with the facts needed to show it. The id is the lowercase hex SHA-256 of its bytes."""

    id: str
    media_type: str
    byte_len: Count
    width: Positive | None = None
    height: Positive | None = None
    label: str | None = None


class ToolReplay(Value, frozen=True, kw_only=True):
    """The values that a provider requires when a part of its reply is sent back to it.

    ``opaque`` is the provider's own form of the part; lash does not interpret it.
    """

    item_id: str | None = None
    opaque: JSON = None


class ReasoningMeta(Value, frozen=True, kw_only=True):
    item_id: str | None = None
    encrypted_content: str | None = None
    signature: str | None = None
    redacted: bool = False
    summary: tuple[str, ...] = ()


class ResponseMeta(Value, frozen=True, kw_only=True):
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class Part(Value, frozen=True, kw_only=True, gc=False):
    """One piece of a message."""

    id: str
    kind: PartKind
    content: str
    attachment: AttachmentRef | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_replay: ToolReplay | None = None
    prune_state: PruneState = INTACT
    reasoning_meta: ReasoningMeta | None = None
    response_meta: ResponseMeta | None = None

    def __post_init__(self) -> None:
        if self.prune_state is not INTACT:
            share_default(self, "prune_state", INTACT)


class PluginOrigin(Value, frozen=True, kw_only=True, tag_field="kind", tag="plugin"):
    """The message was made by a plugin; a transient one is not shown as part of the conversation."""

    plugin_id: str
    transient: bool = False


class ProcessOrigin(Value, frozen=True, kw_only=True, tag_field="kind", tag="process"):
    """The message came from an event of a background process."""

    process_id: str
    event_type: str
    sequence: Count
    wake_id: str | None = None
    caused_by: CausalRef | None = None


class Message(Value, frozen=True, kw_only=True, gc=False):
    """One message of a user, a model or a tool, in parts."""

    id: str
    role: Role
    parts: tuple[Part, ...] = ()
    origin: PluginOrigin | ProcessOrigin | None = None

    @property
    def text(self) -> str:
        """The text of the message: its parts of text and prose, each on lines of its own."""
        return "\n".join(part.content for part in self.parts if part.kind in _TEXTS)

    @classmethod
    def of_text(cls, id: str, role: Role, content: str) -> Message:  # noqa: A002 - the field's own name
        """Return a message of a single text part."""
        return cls(id=id, role=role, parts=(Part(id=f"{id}:0", kind=PartKind.TEXT, content=content),))
