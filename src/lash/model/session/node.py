"""Nodes: the immutable entries of a conversation graph."""

from __future__ import annotations

from typing import TypeAlias

from lash.model.causal import CausalRef
from lash.model.session.message import Message
from lash.model.value import JSON, Timestamp, Value


class MessageEntry(Value, frozen=True, kw_only=True, tag_field="kind", tag="message", gc=False):
    """The node is a message of the conversation.

    ``native`` is the framework's own item that the message shows; lash stores it and does not interpret it.
    """

    message: Message
    native: JSON = None


class ProtocolEntry(Value, frozen=True, kw_only=True, tag_field="kind", tag="protocol"):
    """The node is an event of an agent protocol; lash does not interpret it."""

    plugin_id: str
    payload: JSON


class PluginEntry(Value, frozen=True, kw_only=True, tag_field="kind", tag="plugin"):
    """The node is an entry of a plugin."""

    plugin_type: str
    body: JSON


class BytesEntry(Value, frozen=True, kw_only=True, tag_field="kind", tag="bytes", gc=False):
    """The node is an entry of a plugin whose content is bytes. They are stored as they are, not as text."""

    plugin_type: str
    content: bytes


class ErasedEntry(Value, frozen=True, kw_only=True, tag_field="kind", tag="erased", gc=False):
    """The node was erased: its content is gone, its place in the graph is not."""


Entry: TypeAlias = MessageEntry | ProtocolEntry | PluginEntry | BytesEntry | ErasedEntry


class Node(Value, frozen=True, kw_only=True, gc=False):
    """One entry of the graph. Its id is unique within its session, removed nodes included."""

    node_id: str
    parent_node_id: str | None = None
    timestamp: Timestamp
    entry: Entry
    agent_frame_id: str | None = None
    caused_by: CausalRef | None = None

    @property
    def kind(self) -> str:
        """The kind of its entry: ``message``, ``erased``, or the kind and the name of a plugin, as ``plugin:note``."""
        match self.entry:
            case MessageEntry():
                return "message"
            case ProtocolEntry():
                return f"protocol:{self.entry.plugin_id}"
            case PluginEntry():
                return f"plugin:{self.entry.plugin_type}"
            case BytesEntry():
                return f"bytes:{self.entry.plugin_type}"
            case ErasedEntry():
                return "erased"


class RawNode(Value, frozen=True, kw_only=True, gc=False):
    """A node whose body is not decoded: the JSON object of all its fields but the ids.

    The bytes of a `BytesEntry` are in ``content``, and its body has an empty text instead.
    """

    node_id: str
    parent_node_id: str | None
    body: bytes
    content: bytes | None = None


class Graph(Value, frozen=True, kw_only=True):
    """Nodes in the order of their insertion, and the leaf of the path that was read."""

    nodes: tuple[Node, ...] = ()
    leaf_node_id: str | None = None
