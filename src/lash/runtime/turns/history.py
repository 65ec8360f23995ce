"""The conversation before a turn, cached for as long as no other worker commits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from lash.backend.hints import session_tag
from lash.base.compression import BlobRef
from lash.model.session.checkpoint import FRAME_PREFIX, CheckpointManifest, TurnState
from lash.model.session.commit import Append, Commit, CommitResult
from lash.model.session.frame import AgentFrame
from lash.model.session.message import Message
from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import SessionConfig, SessionRead
from lash.stores.storage import Storage

_MOST_NODES: Final = 50_000
"""Bounds the memory of the cache: about 100 MB at 2 kB a node."""
_MOST_SESSIONS: Final = 256
"""Bounds how long an eviction takes to count nodes."""
_CONFIG: Final = SessionConfig()
_MANIFEST: Final = CheckpointManifest()


class History:
    """One revision of a session's active path, with the state saved beside it."""

    def __init__(
        self,
        *,
        revision: int = 0,
        config: SessionConfig = _CONFIG,
        frames: tuple[AgentFrame, ...] = (),
        current_frame_id: str | None = None,
        nodes: Sequence[Node] = (),
        manifest: CheckpointManifest = _MANIFEST,
        components: dict[str, bytes] | None = None,
    ) -> None:
        self.revision = revision
        self.config = config
        self.frames = frames
        self.current_frame_id = current_frame_id
        self.nodes = list(nodes)
        self._manifest = manifest
        self._components = components or {}

    @classmethod
    def of(cls, read: SessionRead) -> History:
        return cls(
            revision=read.head.revision,
            config=read.head.config,
            frames=read.frames,
            current_frame_id=read.head.current_frame_id,
            nodes=read.graph.nodes,
            manifest=read.checkpoint.manifest,
            components=read.checkpoint.components,
        )

    @property
    def leaf_node_id(self) -> str | None:
        return self.nodes[-1].node_id if self.nodes else None

    @property
    def turn_state(self) -> TurnState:
        return self._manifest.turn_state

    @property
    def plugin_snapshot_revision(self) -> int | None:
        return self._manifest.plugin_snapshot_revision

    def messages(self) -> list[Message]:
        return [node.entry.message for node in self.nodes if isinstance(node.entry, MessageEntry)]

    def messages_through(self, leaf_node_id: str | None) -> list[Message]:
        """Return the messages up to this node; all of them if it is no longer on the path."""
        if leaf_node_id is None:
            return []
        messages: list[Message] = []
        for node in self.nodes:
            if isinstance(node.entry, MessageEntry):
                messages.append(node.entry.message)
            if node.node_id == leaf_node_id:
                return messages
        return messages

    def component_refs(self) -> dict[str, BlobRef]:
        """Return the saved state by name, without what belongs to frames."""
        return {name: ref for name, ref in self._manifest.components.items() if not name.startswith(FRAME_PREFIX)}

    def component_bytes(self) -> dict[str, bytes]:
        return self._components

    def after(self, commit: Commit, result: CommitResult) -> History:
        """Return the history that stands after a commit of ours."""
        changed = {name: part for name, part in commit.checkpoint.components.items() if isinstance(part, bytes)}
        history = History(
            revision=result.revision,
            config=commit.config,
            frames=commit.frames,
            current_frame_id=commit.current_frame_id,
            manifest=result.manifest,
            components={**self._components, **changed},
        )
        # Shared on purpose: a turn that ran holds no view of the list any more.
        history.nodes = self.nodes
        if isinstance(commit.graph, Append):
            history.nodes.extend(commit.graph.nodes)
        return history


class Histories:
    """A cache of histories, least recently used first, bounded by the number of nodes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, History] = OrderedDict()
        self._tagged: dict[str, str] = {}

    def tagged(self, tag: str) -> str | None:
        """Return the session of this tag whose history is kept, the latest of several."""
        session_id = self._tagged.get(tag)
        return session_id if session_id in self._kept else None

    async def load(self, storage: Storage, session_id: str, *, revision: int | None = None) -> History:
        """Return the history as it stands: from memory if the head has not moved, else from the storage.

        ``revision`` is that of the session if the caller has just read it.
        """
        session, kept = storage.session(session_id), self._kept.get(session_id)
        if revision == 0:
            # The session has no commit yet.
            return History()
        if kept is not None:
            if revision is None:
                head = await session.head()
                revision = None if head is None else head.revision
            if revision == kept.revision:
                self._kept.move_to_end(session_id)
                return kept
        read = await session.load()
        if read is None:
            first = await session.revision()
            # Another worker may have made the first commit meanwhile; its revision without its nodes would drop them.
            read = await session.load()
            if read is None:
                return History(revision=first)
        return self._keep(session_id, History.of(read))

    def advance(self, session_id: str, commit: Commit, result: CommitResult) -> None:
        """Note a commit of ours."""
        kept = self._kept.pop(session_id, None)
        if kept is not None and kept.revision == commit.expected_revision:
            self._keep(session_id, kept.after(commit, result))
        elif kept is None and commit.expected_revision == 0:
            self._keep(session_id, History().after(commit, result))

    def _keep(self, session_id: str, history: History) -> History:
        self._kept[session_id] = history
        self._tagged[session_tag(session_id)] = session_id
        self._kept.move_to_end(session_id)
        while len(self._kept) > 1 and (
            len(self._kept) > _MOST_SESSIONS or sum(len(each.nodes) for each in self._kept.values()) > _MOST_NODES
        ):
            self._kept.popitem(last=False)
        return history
