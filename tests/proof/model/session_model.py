"""Sessions as their readers see them: whole copies of graphs, checkpoints and ledgers, and no sharing."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import UnsetType

from lash.base.compression import BlobRef
from lash.model.lease import LeaseFence
from lash.model.queue import ClaimCompletion
from lash.model.session.checkpoint import Checkpoint, CheckpointDraft, CheckpointManifest
from lash.model.session.commit import Append, AppendResult, Commit, CommitResult, ReplaceFull
from lash.model.session.created import CreatedSession
from lash.model.session.frame import AgentFrame
from lash.model.session.message import Role
from lash.model.session.node import ErasedEntry, Graph, MessageEntry, Node
from lash.model.session.session import ForkRelation, SessionConfig, SessionHead, SessionMeta, SessionRead
from lash.model.session.usage import TokenUsage, UsageEntry
from tests.proof.model import lease_model
from tests.proof.model.base_model import Sessions, SessionState
from tests.proof.model.kit import Refused

NO_STATE: Final = BlobRef(hashlib.sha256(b"lash.checkpoint.v1\0{}").hexdigest())
"""The ref of a checkpoint that was never given a state."""


@dataclasses.dataclass
class Placed:
    """A node in a session: its own, or inherited from the session that made it."""

    node: Node
    owner: History
    removed: bool = False

    @property
    def erased(self) -> bool:
        return isinstance(self.node.entry, ErasedEntry)


@dataclasses.dataclass
class Saved:
    """The state that was saved with the head."""

    ref: BlobRef
    manifest: CheckpointManifest
    components: dict[str, bytes]
    frame_states: dict[BlobRef, bytes]
    config: SessionConfig
    frames: tuple[AgentFrame, ...]
    current_frame_id: str | None
    updated_at_ms: int

    def blobs(self) -> dict[BlobRef, bytes]:
        """Return all bytes that the head needs."""
        return {hash_of(content): content for content in self.components.values()} | self.frame_states


@dataclasses.dataclass(eq=False)
class History:
    """What one session has committed."""

    nodes: dict[str, Placed] = dataclasses.field(default_factory=dict)
    leaf: str | None = None
    saved: Saved | None = None
    usage: list[UsageEntry] = dataclasses.field(default_factory=list)
    turns: dict[str, tuple[Commit, CommitResult]] = dataclasses.field(default_factory=dict)
    appended: dict[str, tuple[list[tuple[Role, str]], AppendResult]] = dataclasses.field(default_factory=dict)
    """The turns that are appends."""
    fork: ForkRelation | None = None

    def live(self) -> dict[str, Placed]:
        return {node_id: each for node_id, each in self.nodes.items() if not each.removed}

    def ancestry(self, node_id: str | None) -> Iterator[str]:
        """Return the node and what it hangs on, removed or not, up to where a vacuum has taken it."""
        while node_id is not None:
            yield node_id
            placed = self.nodes.get(node_id)
            node_id = None if placed is None else placed.node.parent_node_id

    def path(self, leaf: str | None) -> list[Node]:
        """Return the nodes with content on the way to a leaf."""
        return [node for node in self.way(leaf) if not isinstance(node.entry, ErasedEntry)]

    def way(self, leaf: str | None) -> list[Node]:
        """Return the live nodes from the root to a leaf; it begins behind a removed ancestor."""
        found: list[Node] = []
        for node_id in self.ancestry(leaf):
            placed = self.nodes.get(node_id)
            if placed is None or placed.removed:
                break
            found.append(placed.node)
        return found[::-1]

    def ledger(self) -> tuple[UsageEntry, ...]:
        """Return the sums by source and model, in the order in which they were first seen."""
        sums: dict[tuple[str, str], TokenUsage] = {}
        for entry in self.usage:
            sums[entry.source, entry.model] = _sum(sums.get((entry.source, entry.model), TokenUsage()), entry.usage)
        return tuple(UsageEntry(source=source, model=model, usage=usage) for (source, model), usage in sums.items())


class Histories:
    """The histories of all sessions that live."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self._histories: dict[tuple[str, int], History] = {}
        self._refs: dict[bytes, BlobRef] = {}
        self.check_claims: Callable[[Commit], None] = _nothing
        """Refuses a commit whose claims do not hold; called between the checks of revision and graph."""
        self.check_attachments: Callable[[Commit], None] = _nothing
        """Refuses a commit that names attachments which are not there; called as the last check."""
        self.settle: Callable[[Commit], None] = _nothing
        """Does what else a commit does."""

    def of(self, session_id: str) -> History:
        state = self.sessions.need(session_id)
        return self._histories.setdefault((session_id, state.incarnation), History())

    def all(self) -> list[History]:
        return [self.of(session_id) for session_id in self.sessions.live]

    def inherited_from(self, history: History) -> set[str]:
        """Return the nodes of a session that a fork inherits."""
        others = (other for other in self.all() if other is not history)
        return {node_id for other in others for node_id, each in other.nodes.items() if each.owner is history}

    def read(self, session_id: str, nodes: list[Node] | None = None, leaf: str | None = None) -> SessionRead | None:
        """Return what a load returns: the whole graph, or these nodes as the path to this leaf."""
        state, history = self.sessions.need(session_id), self.of(session_id)
        saved = history.saved
        if saved is None:
            return None
        everything = [each.node for each in history.live().values()]
        return SessionRead(
            head=_head(state, history, saved),
            frames=saved.frames,
            graph=Graph(
                nodes=tuple(everything if nodes is None else nodes),
                leaf_node_id=history.leaf if nodes is None or leaf is None else leaf,
            ),
            checkpoint=Checkpoint(
                ref=saved.ref, revision=state.revision, manifest=saved.manifest, components=saved.components
            ),
            usage=history.ledger(),
        )

    def nodes(self, session_id: str, node_ids: list[str]) -> dict[str, Node]:
        """Return the live nodes of these ids."""
        live = self.of(session_id).live()
        return {node_id: live[node_id].node for node_id in node_ids if node_id in live}

    def children(self, session_id: str, node_id: str) -> tuple[Node, ...]:
        """Return the live children of a live node, in the order of insertion."""
        live = self.of(session_id).live()
        found = (each.node for each in live.values() if each.node.parent_node_id == node_id)
        return tuple(found) if node_id in live else ()

    def listed(self, session_id: str, after: str | None, *, newest_first: bool) -> tuple[Node, ...]:
        """Return the live nodes after a node, live or removed, in either order; all of them are messages."""
        known = [*self.of(session_id).nodes.values()]
        ordered = known[::-1] if newest_first else known
        ids = [each.node.node_id for each in ordered]
        behind = 0 if after is None else ids.index(after) + 1
        return tuple(each.node for each in ordered[behind:] if not each.removed and not each.erased)

    def commit(self, commit: Commit, made: CommitResult | None) -> CommitResult:
        """Say what a commit does, in the order of checks that callers rely on."""
        state, history = self.sessions.need(commit.session_id), self.of(commit.session_id)
        if commit.turn_id in history.appended:
            raise Refused("TurnConflict", session_id=commit.session_id, turn_id=commit.turn_id)
        if commit.turn_id in history.turns:
            first, result = history.turns[commit.turn_id]
            if not _same_content(first, commit):
                raise Refused("TurnConflict", session_id=commit.session_id, turn_id=commit.turn_id)
            self._release(commit)
            return result
        self._check(commit, state)
        self.check_claims(commit)
        nodes, leaf = self._graph(commit, history)
        saved = self._save(commit, history, made)
        self.check_attachments(commit)
        assert made is not None, "nothing is in the way of this commit"
        state.revision += 1
        history.nodes, history.leaf, history.saved = nodes, leaf, saved
        state.leaf_node_id = leaf
        history.usage += [entry for entry in commit.usage if entry.usage != TokenUsage()]
        result = CommitResult(revision=state.revision, checkpoint_ref=saved.ref, manifest=saved.manifest)
        if commit.turn_id is not None:
            history.turns[commit.turn_id] = (commit, result)
        self.settle(commit)
        self._release(commit)
        return result

    def first_commit(self, commit: Commit, made: CommitResult | None) -> CommitResult:
        """Say what a commit to a session does that is created for it; a refused one leaves no session."""
        session_id, old = commit.session_id, self.sessions.deleted.get(commit.session_id)
        start = 0 if old is None else old.revision + 1
        self.sessions.add(session_id, start if made is None else made.revision - 1)
        try:
            return self.commit(msgspec.structs.replace(commit, expected_revision=start), made)
        except Refused:
            del self.sessions.live[session_id]
            if old is not None:
                self.sessions.deleted[session_id] = old
            raise

    def found_commit(self, commit: Commit) -> CommitResult | None:
        """Say which result a creation with this commit finds in the session that exists."""
        history = self.of(commit.session_id)
        first = history.turns.get(commit.turn_id or "")
        if commit.turn_id in history.appended or (first is not None and not _same_content(first[0], commit)):
            raise Refused("TurnConflict", session_id=commit.session_id, turn_id=commit.turn_id)
        return None if first is None else first[1]

    def append(self, session_id: str, nodes: list[Node], turn_id: str | None) -> AppendResult:
        """Say what an append does: nodes behind the leaf, and nothing else."""
        state, history = self.sessions.need(session_id), self.of(session_id)
        said = _said(nodes)
        if turn_id in history.turns or history.appended.get(turn_id or "", (said,))[0] != said:
            raise Refused("TurnConflict", session_id=session_id, turn_id=turn_id)
        if turn_id in history.appended:
            return history.appended[turn_id][1]
        for node in nodes:
            if node.node_id in history.nodes:
                raise Refused("NodeConflict", session_id=session_id, node_id=node.node_id)
        state.revision += 1
        result = AppendResult(revision=state.revision, parent_node_id=history.leaf)
        for node in nodes:
            placed = msgspec.structs.replace(node, parent_node_id=history.leaf)
            history.nodes[node.node_id] = Placed(placed, history)
            history.leaf = state.leaf_node_id = node.node_id
        if history.saved is None:
            history.saved = Saved(NO_STATE, CheckpointManifest(), {}, {}, SessionConfig(), (), None, 0)
        history.saved = dataclasses.replace(history.saved, updated_at_ms=self.sessions.now_ms)
        if turn_id is not None:
            history.appended[turn_id] = (said, result)
        return result

    def _check(self, commit: Commit, state: SessionState) -> None:
        """Refuse a commit whose fence or revision does not hold."""
        if commit.fence is not None:
            lease_model.live(state, commit.fence, self.sessions.now_ms)
        if commit.expected_revision != state.revision:
            raise Refused("RevisionConflict", expected=commit.expected_revision, actual=state.revision)

    def remove(self, session_id: str, node_ids: list[str]) -> int:
        """Say how many nodes a tombstone removes."""
        history = self.of(session_id)
        held = {node_id for node_id, each in history.nodes.items() if each.owner is not history}
        held |= set(history.ancestry(history.leaf)) | self.inherited_from(history)
        live = history.live()
        if any(node_id in held and node_id in live for node_id in node_ids):
            raise Refused("InvalidInput")
        found = [live[node_id] for node_id in dict.fromkeys(node_ids) if node_id in live]
        for each in found:
            each.removed = True
        return len(found)

    def erase(self, session_id: str, node_ids: list[str], fence: LeaseFence | None) -> int:
        """Say how many nodes an erasure empties."""
        state, history = self.sessions.need(session_id), self.of(session_id)
        if fence is not None:
            lease_model.live(state, fence, self.sessions.now_ms)
        held = {node_id for node_id, each in history.nodes.items() if each.owner is not history}
        held |= self.inherited_from(history)
        live = history.live()
        if any(node_id in held and node_id in live for node_id in node_ids):
            raise Refused("InvalidInput")
        names = [node_id for node_id in dict.fromkeys(node_ids) if node_id in live and not live[node_id].erased]
        moment = datetime.fromtimestamp(self.sessions.now_ms / 1000, UTC)
        for node_id in names:
            parent = live[node_id].node.parent_node_id
            live[node_id].node = Node(node_id=node_id, parent_node_id=parent, timestamp=moment, entry=ErasedEntry())
        if names:
            assert history.saved is not None, "only a commit brings nodes"
            state.revision += 1
            history.saved = dataclasses.replace(history.saved, updated_at_ms=self.sessions.now_ms)
        return len(names)

    def vacuum(self, session_id: str) -> int:
        history = self.of(session_id)
        gone = [node_id for node_id, each in history.nodes.items() if each.removed]
        for node_id in gone:
            del history.nodes[node_id]
        return len(gone)

    def fork(self, source_id: str, new_id: str, node_id: str | None, made: CreatedSession | None) -> CreatedSession:
        """Say what a fork begins with."""
        known = self.sessions.live.get(new_id)
        if known is not None:
            relation = self.of(new_id).fork
            if relation is None or relation.source_session_id != source_id or node_id not in (None, relation.node_id):
                raise Refused("SessionExists", session_id=new_id)
            return CreatedSession(meta=_fork_meta(known, relation), revision=known.revision, created=False)
        source = self.of(source_id)
        start = source.leaf if node_id is None else node_id
        if start is not None and start not in source.live():
            raise Refused("NodeNotFound", session_id=source_id, node_id=start)
        assert made is not None, "nothing is in the way of this fork"
        state = self.sessions.add(new_id, made.revision, forked=source.saved is not None)
        history = self.of(new_id)
        history.nodes = {node.node_id: Placed(node, source.nodes[node.node_id].owner) for node in source.way(start)}
        history.leaf = state.leaf_node_id = start
        history.fork = ForkRelation(source_session_id=source_id, node_id=start)
        if source.saved is not None:
            history.saved = dataclasses.replace(source.saved, updated_at_ms=self.sessions.now_ms)
        return CreatedSession(meta=_fork_meta(state, history.fork), revision=state.revision, created=True)

    def _graph(self, commit: Commit, history: History) -> tuple[dict[str, Placed], str | None]:
        delta, session_id = commit.graph, commit.session_id
        if isinstance(delta, ReplaceFull):
            live = len(history.live())
            if delta.replaced_node_count != live:
                raise Refused("GraphConflict", session_id=session_id, expected=delta.replaced_node_count)
            if self.inherited_from(history):
                raise Refused("GraphShared", session_id=session_id)
            nodes = {node.node_id: Placed(node, history) for node in delta.nodes}
        else:
            nodes = dict(history.nodes)
            for node in delta.nodes if isinstance(delta, Append) else ():
                _append(session_id, nodes, node, history)
        leaf = delta.leaf_node_id
        if isinstance(leaf, UnsetType):
            leaf = delta.nodes[-1].node_id if isinstance(delta, Append) and delta.nodes else history.leaf
        if leaf is not None and (leaf not in nodes or nodes[leaf].removed):
            raise Refused("NodeNotFound", session_id=session_id, node_id=leaf)
        return nodes, leaf

    def _save(self, commit: Commit, history: History, made: CommitResult | None) -> Saved:
        held = {} if history.saved is None else history.saved.blobs()
        sent = _sent(commit)
        components = {key: _resolve(commit, given, held | sent) for key, given in commit.checkpoint.components.items()}
        frames = tuple(_lean(commit, frame, held | sent) for frame in commit.frames)
        states = {ref: (held | sent)[ref] for frame in frames if (ref := frame.execution_state_ref) is not None}
        manifest = CheckpointManifest(
            turn_state=commit.checkpoint.turn_state,
            plugin_snapshot_revision=commit.checkpoint.plugin_snapshot_revision,
            components={key: hash_of(content) for key, content in sorted(components.items())},
        )
        ref = BlobRef("") if made is None else made.checkpoint_ref
        if made is not None:
            known = self._refs.setdefault(msgspec.json.encode(manifest, order="sorted"), ref)
            assert known == ref, "the same state has the same ref"
        return Saved(
            ref, manifest, components, states, commit.config, frames, commit.current_frame_id, self.sessions.now_ms
        )

    def _release(self, commit: Commit) -> None:
        if commit.release is not None:
            lease_model.release(self.sessions, commit.release)


def hash_of(content: bytes) -> BlobRef:
    return BlobRef(hashlib.sha256(content).hexdigest())


def _nothing(_commit: Commit) -> None:
    """What a commit does without queue and attachments."""


def _said(nodes: Sequence[Node]) -> list[tuple[Role, str]]:
    """Return what a repeated append must have in common with the first one."""
    messages = [node.entry.message for node in nodes if isinstance(node.entry, MessageEntry)]
    return [(message.role, message.parts[0].content) for message in messages]


def _head(state: SessionState, history: History, saved: Saved) -> SessionHead:
    return SessionHead(
        session_id=state.session_id,
        revision=state.revision,
        config=saved.config,
        current_frame_id=saved.current_frame_id,
        leaf_node_id=history.leaf,
        checkpoint_ref=saved.ref,
        node_count=len(history.live()),
        updated_at_ms=saved.updated_at_ms,
    )


def _append(session_id: str, nodes: dict[str, Placed], node: Node, history: History) -> None:
    known = nodes.get(node.node_id)
    if known is not None:
        if known.removed or known.node != node:
            raise Refused("NodeConflict", session_id=session_id, node_id=node.node_id)
        return
    parent = node.parent_node_id
    if parent is not None and (parent not in nodes or nodes[parent].removed):
        raise Refused("NodeNotFound", session_id=session_id, node_id=parent)
    nodes[node.node_id] = Placed(node, history)


def _sent(commit: Commit) -> dict[BlobRef, bytes]:
    """Return the bytes that a commit brings along."""
    given: list[object] = [*commit.checkpoint.components.values(), *(frame.execution_state for frame in commit.frames)]
    return {hash_of(content): content for content in given if isinstance(content, bytes)}


def _resolve(commit: Commit, given: bytes | BlobRef, known: dict[BlobRef, bytes]) -> bytes:
    if isinstance(given, bytes):
        return given
    if given not in known:
        raise Refused("BlobNotFound", session_id=commit.session_id, ref=given)
    return known[given]


def _lean(commit: Commit, frame: AgentFrame, known: dict[BlobRef, bytes]) -> AgentFrame:
    """Return the frame as it is read back: with the ref of its state, without the bytes."""
    given = frame.execution_state if frame.execution_state is not None else frame.execution_state_ref
    if given is None:
        return frame
    ref = hash_of(_resolve(commit, given, known))
    return msgspec.structs.replace(frame, execution_state=None, execution_state_ref=ref)


def _same_content(first: Commit, other: Commit) -> bool:
    """Say whether two commits publish the same; what a retry may do differently does not count."""
    return _content(first) == _content(other)


def _content(commit: Commit) -> Commit:
    components = {key: value if isinstance(value, str) else hash_of(value) for key, value in _components(commit)}
    checkpoint = CheckpointDraft(
        turn_state=commit.checkpoint.turn_state,
        plugin_snapshot_revision=commit.checkpoint.plugin_snapshot_revision,
        components=components,
    )
    return msgspec.structs.replace(
        commit, expected_revision=0, fence=None, release=None, checkpoint=checkpoint, completions=_consumed(commit)
    )


def _consumed(commit: Commit) -> tuple[ClaimCompletion, ...]:
    """Return which batches a commit consumes, under whatever claim."""
    return tuple(msgspec.structs.replace(each, claim_id="", token="") for each in commit.completions)


def _components(commit: Commit) -> list[tuple[str, bytes | BlobRef]]:
    return sorted(commit.checkpoint.components.items())


def _fork_meta(state: SessionState, relation: ForkRelation) -> SessionMeta:
    return SessionMeta(
        session_id=state.session_id,
        name=state.session_id,
        created_at_ms=state.created_at_ms,
        relation=relation,
        owner=state.owner,
        labels=state.labels,
    )


def _sum(first: TokenUsage, second: TokenUsage) -> TokenUsage:
    return TokenUsage(
        input_tokens=first.input_tokens + second.input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
        cached_input_tokens=first.cached_input_tokens + second.cached_input_tokens,
        reasoning_tokens=first.reasoning_tokens + second.reasoning_tokens,
    )
