"""The conversation before a turn, cached for as long as no other worker commits."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from lash.backend.hints import session_tag
from lash.base.compression import BlobRef
from lash.model.session.checkpoint import FRAME_PREFIX, CheckpointManifest, TurnState
from lash.model.session.commit import Append, Commit, CommitResult
from lash.model.session.frame import AgentFrame
from lash.model.session.message import Message
from lash.model.session.node import MessageEntry
from lash.model.session.session import SessionConfig
from lash.runtime.turns.messages import Tail, last_of, read_tail
from lash.stores.session import Session
from lash.stores.storage import Storage

LEAST_NODES: Final = 100
"""How many nodes at the end of a path are read for any turn: about a millisecond, and enough for most agents."""
ALL: Final = sys.maxsize
"""More messages than any conversation has."""
_MESSAGE_BYTES: Final = 700
"""What a message of one part takes in memory beside its content: measured, its objects and their ids."""
_SESSION_BYTES: Final = 4_096
"""What a history takes beside its messages and state: configuration, frames and manifest."""
_SLICE: Final = 2_000
"""How many messages are measured in one iteration of the event loop: about two milliseconds."""
_CONFIG: Final = SessionConfig()
_MANIFEST: Final = CheckpointManifest()
_encoder: Final = msgspec.msgpack.Encoder()


class History:
    """One revision of a session: the last messages of its active path, and the state saved beside them."""

    def __init__(
        self,
        *,
        revision: int = 0,
        config: SessionConfig = _CONFIG,
        frames: tuple[AgentFrame, ...] = (),
        current_frame_id: str | None = None,
        leaf_node_id: str | None = None,
        messages: list[Message] | None = None,
        messages_size: int = 0,
        is_whole: bool = True,
        manifest: CheckpointManifest = _MANIFEST,
        components: dict[str, bytes] | None = None,
    ) -> None:
        self.revision = revision
        self.config = config
        self.frames = frames
        self.current_frame_id = current_frame_id
        self.leaf_node_id = leaf_node_id
        self._messages = [] if messages is None else messages
        self._messages_size = messages_size
        self._is_whole = is_whole
        self._manifest = manifest
        self._components = components or {}
        self.size = _SESSION_BYTES + messages_size + sum(map(len, self._components.values()))
        """About how many bytes of memory it takes."""

    @classmethod
    async def of(cls, tail: Tail) -> History:
        """Return the history that was read; a long one is measured without blocking the event loop."""
        head = tail.head
        return cls(
            revision=head.revision,
            config=head.config,
            frames=tail.frames,
            current_frame_id=head.current_frame_id,
            leaf_node_id=head.leaf_node_id,
            messages=tail.messages,
            messages_size=await _measure(tail.messages),
            is_whole=tail.is_whole,
            manifest=tail.checkpoint.manifest,
            components=tail.checkpoint.components,
        )

    @property
    def turn_state(self) -> TurnState:
        return self._manifest.turn_state

    @property
    def plugin_snapshot_revision(self) -> int | None:
        return self._manifest.plugin_snapshot_revision

    def holds(self, last: int) -> bool:
        """Return whether it holds the last so many messages, or all that there are."""
        return self._is_whole or last <= len(self._messages)

    def messages(self, last: int = ALL) -> list[Message]:
        """Return the last so many of the messages that it holds."""
        return last_of(self._messages, last)

    def component_refs(self) -> dict[str, BlobRef]:
        """Return the saved state by name, without what belongs to frames."""
        return {name: ref for name, ref in self._manifest.components.items() if not name.startswith(FRAME_PREFIX)}

    def component_bytes(self) -> dict[str, bytes]:
        return self._components

    def is_continued_by(self, commit: Commit) -> bool:
        """Return whether a commit leaves the path as it is, or adds to its end."""
        if isinstance(commit.graph, Append):
            return commit.graph.nodes[0].parent_node_id == self.leaf_node_id
        return commit.graph.leaf_node_id in {UNSET, self.leaf_node_id}

    def after(self, commit: Commit, result: CommitResult) -> History:
        """Return the history that stands after a commit of ours."""
        new = commit.graph.nodes if isinstance(commit.graph, Append) else ()
        messages = [node.entry.message for node in new if isinstance(node.entry, MessageEntry)]
        # Shared on purpose: a turn that ran holds no view of the list any more.
        self._messages.extend(messages)
        parts = commit.checkpoint.components
        components = {**self._components, **{name: part for name, part in parts.items() if isinstance(part, bytes)}}
        return History(
            revision=result.revision,
            config=commit.config,
            frames=commit.frames,
            current_frame_id=commit.current_frame_id,
            leaf_node_id=new[-1].node_id if new else self.leaf_node_id,
            messages=self._messages,
            messages_size=self._messages_size + size_of(messages),
            is_whole=self._is_whole,
            manifest=result.manifest,
            components={name: part for name, part in components.items() if name in result.manifest.components},
        )

    def end(self) -> History:
        """Return the same revision with only its last messages."""
        messages = self._messages[-LEAST_NODES:]
        return History(
            revision=self.revision,
            config=self.config,
            frames=self.frames,
            current_frame_id=self.current_frame_id,
            leaf_node_id=self.leaf_node_id,
            messages=messages,
            messages_size=size_of(messages),
            is_whole=self._is_whole and len(messages) == len(self._messages),
            manifest=self._manifest,
            components=self._components,
        )


class Histories:
    """A cache of histories, bounded in bytes; the least recently used are dropped first.

    Only the last messages are kept of a history that is larger than the cache.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._kept: OrderedDict[str, History] = OrderedDict()
        self._tagged: dict[str, str] = {}

    @property
    def size(self) -> int:
        """About how many bytes of memory the kept histories take."""
        return self._size

    def tagged(self, tag: str) -> str | None:
        """Return the session of this tag whose history is kept, the latest of several."""
        session_id = self._tagged.get(tag)
        return session_id if session_id in self._kept else None

    async def load(
        self,
        storage: Storage,
        session_id: str,
        *,
        revision: int | None = None,
        leaf_node_id: str | None = None,
        last: int = 0,
    ) -> History:
        """Return the history as it stands: from memory if the head has not moved, else from the storage.

        It holds at least the last so many messages. ``revision`` and ``leaf_node_id`` are those of the session if the
        caller has just read them. The revision alone is not enough: after a failover that lost commits, another commit
        has the revision of a lost one.
        """
        kept = self._kept.get(session_id)
        if revision == 0:
            # The session has no commit yet.
            return History()
        if kept is not None and kept.holds(last):
            if revision is None:
                head = await storage.session(session_id).head()
                revision, leaf_node_id = (None, None) if head is None else (head.revision, head.leaf_node_id)
            if (revision, leaf_node_id) == (kept.revision, kept.leaf_node_id):
                self._kept.move_to_end(session_id)
                return kept
        session = storage.session(session_id)
        tail = await _read(session, last)
        if tail is None:
            first = await session.revision()
            # Another worker may have made the first commit meanwhile; its revision without its nodes would drop them.
            tail = await _read(session, last)
            if tail is None:
                return History(revision=first)
        history = await History.of(tail)
        self._keep(session_id, history)
        return history

    def last_message(self, session_id: str, node_id: str) -> Message | None:
        """Return the message of a node if it ends a history that is kept; what is kept was committed or read."""
        kept = self._kept.get(session_id)
        return None if kept is None or kept.leaf_node_id != node_id else next(iter(kept.messages(1)), None)

    def advance(self, session_id: str, commit: Commit, result: CommitResult) -> None:
        """Note a commit of ours."""
        kept = self._drop(session_id)
        if kept is None and commit.expected_revision == 0:
            kept = History()
        if kept is not None and kept.revision == commit.expected_revision and kept.is_continued_by(commit):
            self._keep(session_id, kept.after(commit, result))

    def _keep(self, session_id: str, history: History) -> None:
        if session_id in self._kept:
            self._drop(session_id)
        kept = history if history.size <= self._max_bytes else history.end()
        self._kept[session_id] = kept
        self._tagged[session_tag(session_id)] = session_id
        self._size += kept.size
        while self._size > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, session_id: str) -> History | None:
        kept = self._kept.pop(session_id, None)
        if kept is not None:
            self._size -= kept.size
        return kept


def size_of(messages: Sequence[Message]) -> int:
    """Return about how many bytes of memory some messages take."""
    return sum(_MESSAGE_BYTES + len(_encoder.encode(message)) for message in messages)


async def _measure(messages: list[Message]) -> int:
    total = 0
    for start in range(0, len(messages), _SLICE):
        if start:
            await asyncio.sleep(0)
        total += size_of(messages[start : start + _SLICE])
    return total


async def _read(session: Session, last: int) -> Tail | None:
    return await read_tail(session, None if last == ALL else last, least_nodes=LEAST_NODES)
