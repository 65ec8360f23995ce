"""Rules about sessions: valid and invalid commits of all kinds, reads, removals and forks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant
from msgspec import UNSET, UnsetType

from lash.base.compression import BlobRef
from lash.model.queue import ClaimCompletion
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.commit import Append, AppendResult, Commit, CommitResult, GraphDelta, ReplaceFull, Unchanged
from lash.model.session.created import CreatedSession
from lash.model.session.frame import AgentFrame
from lash.model.session.message import Role
from lash.model.session.node import Node
from lash.model.session.session import ActivePath, FullGraph, SessionConfig, SessionFilter, SessionMeta
from lash.model.session.usage import TokenUsage, UsageEntry
from lash.stores.storage import Storage
from tests.factories.session import MOMENT, node
from tests.proof.model.base_model import SessionState
from tests.proof.model.base_rules import SESSION_IDS, session_ids
from tests.proof.model.kit import Refused, action
from tests.proof.model.lease_rules import LeaseRules
from tests.proof.model.rows import Dump
from tests.proof.model.session_model import Histories, History, hash_of
from tests.proof.model.session_replica import Replica
from tests.proof.model.world import Side, World

MISSING: Final = BlobRef("0" * 64)
DELTAS: Final = (
    ("append",) * 6
    + ("branch", "move", "move away", "replace", "replace", "replace wrong")
    + ("again", "other content", "orphan", "lost leaf", "nothing")
)
BYTES: Final = {"x": b"x", "y": b"y", "big": b"z" * 5_000}
STATES: Final = ("none", "none", "x", "y", "x y", "big", "keep", "keep", "keep", "move", "move", "unknown")
FRAMES: Final = ("none", "none", "none", "none", "plain", "with x", "with y", "keep", "keep", "unknown")
USAGE: Final = {
    "none": (),
    "some": (UsageEntry(source="turn", model="m", usage=TokenUsage(input_tokens=5, output_tokens=2)),),
    "cached": (UsageEntry(source="turn", model="n", usage=TokenUsage(cached_input_tokens=3)),),
    "two": (
        UsageEntry(source="sub", model="m", usage=TokenUsage(reasoning_tokens=1)),
        UsageEntry(source="turn", model="m", usage=TokenUsage(input_tokens=1)),
        UsageEntry(source="turn", model="m", usage=TokenUsage()),
    ),
}
T = TypeVar("T")
places: Final = st.integers(0, 9)
owners: Final = st.sampled_from((None, "ada", "bob"))
teams: Final = st.sampled_from(("", "x", "y"))


class SessionRules(LeaseRules):
    """All operations on the history of sessions."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.histories = Histories(self.sessions)
        self.histories.settle = self.settle
        self._replicas = {side.backend: Replica() for side in world.sides}
        self._made = 0
        self._turns: list[Commit] = []
        self._firsts: list[Commit] = []
        self._append_turns: list[tuple[str, list[Node], str]] = []

    @action(
        16,
        session_id=session_ids,
        delta=st.sampled_from(DELTAS),
        size=st.integers(1, 3),
        place=places,
        state=st.sampled_from(STATES),
        frames=st.sampled_from(FRAMES),
        usage=st.sampled_from(tuple(USAGE)),
        stale=st.sampled_from((0,) * 10 + (-1, 1)),
        turn=st.booleans(),
        fence=st.sampled_from(("none", "none", "none", "held", "held", "held", "released", "stale")),
    )
    def commit(  # the arguments are drawn by their names
        self,
        session_id: str,
        delta: str,
        size: int,
        place: int,
        state: str,
        frames: str,
        usage: str,
        stale: int,
        turn: bool,  # noqa: FBT001
        fence: str,
    ) -> None:
        known = self.sessions.live.get(session_id)
        history = History() if known is None else self.histories.of(session_id)
        leases = [lease for lease in self.leases if lease.resource.id == session_id]
        lease = leases[-1 if fence == "stale" else 0].fence if leases and fence != "none" else None
        sent = _frames(history, frames)
        commit = Commit(
            session_id=session_id,
            expected_revision=max(0, (0 if known is None else known.revision) + stale),
            turn_id=f"t{self._number()}" if turn else None,
            fence=lease,
            release=lease if fence in ("released", "stale") else None,
            config=SessionConfig(provider_id=f"p{place}"),
            frames=sent,
            current_frame_id=sent[-1].frame_id if sent else None,
            graph=self._delta(history, delta, size, place),
            checkpoint=CheckpointDraft(turn_state=TurnState(turn_index=place), components=_state(history, state)),
            usage=USAGE[usage],
            completions=self.completions_for(session_id, place),
        )
        if self.commit_it("commit", commit) is not None and commit.turn_id is not None:
            self._turns.insert(0, commit)

    @action(
        4,
        when=lambda self: self._turns,
        which=st.sampled_from((0, 0, 0, 1, 3)),
        how=st.sampled_from(("same", "same", "other revision", "other fence", "other usage", "other state")),
    )
    def repeat_commit(self, which: int, how: str) -> None:
        commit = self._turns[which % len(self._turns)]
        state = self.sessions.live.get(commit.session_id)
        changes: dict[str, dict[str, object]] = {
            "same": {},
            "other revision": {"expected_revision": 0 if state is None else state.revision},
            "other fence": {"fence": None, "release": None},
            "other usage": {"usage": (*commit.usage, *USAGE["some"])},
            "other state": {"checkpoint": CheckpointDraft(turn_state=TurnState(turn_index=77))},
        }
        # The ids of deleted blobs do not come back, so a repeat of another session's turn would need them.
        self.commit_it("repeat", msgspec.structs.replace(commit, **changes[how]))

    @action(
        3,
        session_id=session_ids,
        delta=st.sampled_from(("append", "append", "replace", "orphan", "nothing")),
        state=st.sampled_from(("x", "x y", "big", "unknown")),
        frames=st.sampled_from(("none", "with x")),
        usage=st.sampled_from(tuple(USAGE)),
        known=st.booleans(),
    )
    def create_with(self, session_id: str, delta: str, state: str, frames: str, usage: str, known: bool) -> None:  # noqa: FBT001
        """Create a session with its first commit; sometimes with one that was made before."""
        sent = _frames(History(), frames)
        commit = Commit(
            session_id=session_id,
            expected_revision=0,
            turn_id=f"t{self._number()}",
            frames=sent,
            graph=self._delta(History(), delta, 2, 0),
            checkpoint=CheckpointDraft(components=_state(History(), state)),
            usage=USAGE[usage],
        )
        if known and self._firsts:
            commit = self._firsts[0]
        self.touched = commit.session_id
        made = self.step(
            "create with",
            lambda side: side.storage.sessions.create(commit.session_id, commit=commit),
            lambda got: self._created_with(commit, got),
        )
        if made is not None:
            self._firsts.insert(0, commit)
            self.count("create with:new" if made.created else "create with:again")

    @action(
        6,
        session_id=session_ids,
        size=st.integers(1, 3),
        place=places,
        turn=st.booleans(),
        taken=st.sampled_from((False,) * 6 + (True,)),
    )
    def append_nodes(self, session_id: str, size: int, place: int, turn: bool, taken: bool) -> None:  # noqa: FBT001
        history = self._history(session_id)
        nodes = [node(f"n{self._number()}", role=Role.USER if place % 2 else Role.ASSISTANT) for _ in range(size)]
        if taken and history.nodes:
            nodes.append(node(_pick([*history.nodes], place, "")))
        turn_id = f"t{self._number()}" if turn else None
        if self._add(session_id, nodes, turn_id) is not None and turn_id is not None:
            self._append_turns.insert(0, (session_id, nodes, turn_id))

    @action(
        2,
        when=lambda self: self._append_turns,
        which=st.sampled_from((0, 0, 0, 1, 3)),
        how=st.sampled_from(("same", "same", "other ids", "other text", "commit")),
    )
    def repeat_append(self, which: int, how: str) -> None:
        session_id, nodes, turn_id = self._append_turns[which % len(self._append_turns)]
        if how == "commit":
            state = self.sessions.live.get(session_id)
            revision = 0 if state is None else state.revision
            self.commit_it("repeat", Commit(session_id=session_id, expected_revision=revision, turn_id=turn_id))
            return
        changed = {
            "same": nodes,
            "other ids": [msgspec.structs.replace(each, node_id=f"n{self._number()}") for each in nodes],
            "other text": [node(each.node_id, text="other") for each in nodes],
        }
        self._add(session_id, changed[how], turn_id)

    @action(2, session_id=session_ids, place=places, size=st.integers(1, 2))
    def tombstone(self, session_id: str, place: int, size: int) -> None:
        history = self._history(session_id)
        chosen = [_pick([*history.nodes], place + each, "none") for each in range(size)]
        self.step(
            "tombstone",
            lambda side: side.storage.session(session_id).tombstone(chosen),
            lambda _: self.histories.remove(session_id, chosen),
        )

    @action(
        3,
        session_id=session_ids,
        place=places,
        size=st.integers(1, 3),
        fence=st.sampled_from(("none", "none", "none", "held", "stale")),
    )
    def erase(self, session_id: str, place: int, size: int, fence: str) -> None:
        history = self._history(session_id)
        chosen = [_pick([*history.nodes], place + each, "none") for each in range(size)]
        leases = [lease for lease in self.leases if lease.resource.id == session_id]
        lease = leases[-1 if fence == "stale" else 0].fence if leases and fence != "none" else None
        self.step(
            "erase",
            lambda side: side.storage.session(session_id).erase(chosen, fence=side.own(lease)),
            lambda _: self.histories.erase(session_id, chosen, lease),
        )

    @action(1, session_id=session_ids)
    def vacuum(self, session_id: str) -> None:
        self.touched = session_id
        self.step("vacuum", lambda side: _vacuum(side, session_id), lambda _: self.histories.vacuum(session_id))

    @action(
        4,
        source_id=session_ids,
        new_id=st.sampled_from(SESSION_IDS),
        place=places,
        at=st.sampled_from(("leaf", "node", "node", "removed")),
    )
    def fork(self, source_id: str, new_id: str, place: int, at: str) -> None:
        if source_id == new_id:
            return
        history = self._history(source_id)
        chosen = _pick([*(history.live() if at == "node" else history.nodes)], place, "none")
        node_id = None if at == "leaf" else chosen
        self.touched = new_id
        made = self.step(
            "fork",
            lambda side: side.storage.sessions.fork(source_id, new_id, node_id=node_id),
            lambda got: self.forked(source_id, new_id, node_id, got),
        )
        if made is not None:
            self.count("fork:new" if made.created else "fork:again")

    @action(3, session_id=session_ids, place=places, last=st.sampled_from((None, 1, 2)))
    def read_path(self, session_id: str, place: int, last: int | None) -> None:
        history = self._history(session_id)
        leaf = _pick([*history.nodes, None, "none"], place, None)
        path = history.path(history.leaf if leaf is None else leaf)
        self.step(
            "load",
            lambda side: side.storage.session(session_id).load(ActivePath(leaf_node_id=leaf, last=last)),
            lambda _: self.histories.read(session_id, path if last is None else path[-last:], leaf),
        )

    @action(2, session_id=session_ids, place=places)
    def read_node(self, session_id: str, place: int) -> None:
        history = self._history(session_id)
        node_id = _pick([*history.nodes], place, "none")
        self.step(
            "node",
            lambda side: side.storage.session(session_id).node(node_id),
            lambda _: self._node(session_id, node_id),
        )

    @action(2, session_id=session_ids, place=places, limit=st.integers(1, 3), newest_first=st.booleans())
    def read_nodes(self, session_id: str, place: int, limit: int, newest_first: bool) -> None:  # noqa: FBT001
        """Read nodes by ids, by parent and by kind."""
        history = self._history(session_id)
        chosen = _pick([*history.nodes], place, "none")
        wanted = [chosen, _pick([*history.live()], place // 2, "none")]
        after = _pick([*history.nodes, None], place, None)
        self.step(
            "nodes",
            lambda side: side.storage.session(session_id).nodes(wanted),
            lambda _: self.histories.nodes(session_id, wanted),
        )
        self.step(
            "children",
            lambda side: side.storage.session(session_id).children(chosen, limit=limit),
            lambda _: self.histories.children(session_id, chosen)[:limit],
        )
        self.step(
            "kind",
            lambda side: side.storage.session(session_id).list_nodes(
                "message", after=after, limit=limit, newest_first=newest_first
            ),
            lambda _: self.histories.listed(session_id, after, newest_first=newest_first)[:limit],
        )

    @action(2, session_id=session_ids, name=st.sampled_from(tuple(BYTES)))
    def read_blob(self, session_id: str, name: str) -> None:
        ref = hash_of(BYTES[name])
        self.step(
            "blob", lambda side: side.storage.session(session_id).blob(ref), lambda _: self._blob(session_id, ref)
        )

    @action(1)
    def list_sessions(self) -> None:
        self.step("sessions", lambda side: side.storage.sessions.list(), lambda got: got)

    @action(4, limit=st.sampled_from((1, 2, 100)))
    def follow_sessions(self, limit: int) -> None:
        self.look("feed", lambda side: self._replicas[side.backend].follow(side, limit), True)

    @action(2, session_id=session_ids, owner=owners, team=teams)
    def edit(self, session_id: str, owner: str | None, team: str) -> None:
        labels = {"team": team} if team else {}
        self.step(
            "edit",
            lambda side: side.storage.session(session_id).edit(owner=owner, labels=labels),
            lambda _: self._edit(session_id, owner, labels),
        )

    @action(2, owner=owners, team=teams)
    def list_found(self, owner: str | None, team: str) -> None:
        wanted = SessionFilter(owner=owner, labels={"team": team} if team else {})
        found = [
            name
            for name, state in reversed(self.sessions.live.items())
            if owner in (None, state.owner) and wanted.labels.items() <= state.labels.items()
        ]
        self.look("found", lambda side: _found(side.storage, wanted), found)

    @action(1)
    def audit(self) -> None:
        self.look("audit", _audit, True)

    @invariant()
    def sessions_read_as_the_model(self) -> None:
        """Head, frames, the whole graph, checkpoint with its bytes and ledger of the session that was used last."""
        if self.touched in self.sessions.live:
            self.look(
                "load whole",
                lambda side: side.storage.session(self.touched).load(FullGraph()),
                self.histories.read(self.touched),
            )

    def compare_rows(self) -> Dump:
        """Compare the rows of both sides, and their bytes and ledger with the model."""
        dump = super().compare_rows()
        columns = {table.name: table.columns for table in self.world.sides[0].tables}
        stored = sorted(row[columns["lash_blobs"].index("hash")] for row in dump.get("lash_blobs", []))
        saved = [history.saved.blobs() for history in self.histories.all() if history.saved is not None]
        assert stored == sorted(ref for blobs in saved for ref in blobs), "bytes are stored that no head needs, or not"
        entries = [entry.usage for history in self.histories.all() for entry in history.usage]
        for counter in TokenUsage.__struct_fields__:
            for table in ("lash_usage", "lash_usage_totals"):
                place = columns[table].index(counter)
                total = sum(row[place] for row in dump.get(table, []))
                assert total == sum(getattr(usage, counter) for usage in entries), f"{table}: {counter} do not add up"
        return dump

    def commit_it(self, name: str, commit: Commit) -> CommitResult | None:
        """Commit, and compare the result with the model."""
        self.touched = commit.session_id
        return self.step(
            name,
            lambda side: side.storage.session(commit.session_id).commit(side.own(commit)),
            lambda got: self.histories.commit(commit, got),
        )

    def _add(self, session_id: str, nodes: list[Node], turn_id: str | None) -> AppendResult | None:
        self.touched = session_id
        return self.step(
            "append",
            lambda side: side.storage.session(session_id).append(nodes, turn_id=turn_id),
            lambda _: self.histories.append(session_id, nodes, turn_id),
        )

    def _created_with(self, commit: Commit, got: CreatedSession | None) -> CreatedSession:
        is_new = commit.session_id not in self.sessions.live
        made = None if got is None else got.commit
        result = self.histories.first_commit(commit, made) if is_new else self.histories.found_commit(commit)
        state = self.sessions.live[commit.session_id]
        return CreatedSession(meta=self.meta_of(state), revision=state.revision, created=is_new, commit=result)

    def settle(self, commit: Commit) -> None:
        """Apply the other effects of a commit to the model; machines with a queue or attachments extend this."""

    def completions_for(self, session_id: str, place: int) -> tuple[ClaimCompletion, ...]:
        """Return claims for a commit to consume; machines with a queue have some."""
        return ()

    def forked(self, source_id: str, new_id: str, node_id: str | None, got: CreatedSession | None) -> CreatedSession:
        """Fork in the model; machines with more than the history extend this."""
        return self.histories.fork(source_id, new_id, node_id, got)

    def meta_of(self, state: SessionState) -> SessionMeta:
        meta, relation = super().meta_of(state), self.histories.of(state.session_id).fork
        return meta if relation is None else msgspec.structs.replace(meta, relation=relation)

    def _edit(self, session_id: str, owner: str | None, labels: dict[str, str]) -> None:
        state = self.sessions.need(session_id)
        state.owner, state.labels = owner, labels

    def _history(self, session_id: str) -> History:
        self.touched = session_id
        return self.histories.of(session_id) if session_id in self.sessions.live else History()

    def _number(self) -> int:
        self._made += 1
        return self._made

    def _node(self, session_id: str, node_id: str) -> Node | None:
        placed = self.histories.of(session_id).live().get(node_id)
        return None if placed is None else placed.node

    def _blob(self, session_id: str, ref: BlobRef) -> bytes:
        saved = self.histories.of(session_id).saved
        if saved is None or ref not in saved.blobs():
            raise Refused("BlobNotFound", session_id=session_id, ref=ref)
        return saved.blobs()[ref]

    def _delta(self, history: History, delta: str, size: int, place: int) -> GraphDelta:
        live = [*history.live()]
        chosen = _pick(live, place, None)
        leaf: str | None | UnsetType = UNSET
        match delta:
            case "nothing":
                return Unchanged()
            case "move" | "move away":
                return Unchanged(leaf_node_id=None if delta == "move away" else chosen)
            case "lost leaf":
                return Unchanged(
                    leaf_node_id=_pick([each for each in history.nodes if each not in live], place, "none")
                )
            case "again" | "other content" if history.nodes:
                known = history.nodes[_pick([*history.nodes], place, "")].node
                other = node(known.node_id, known.parent_node_id, "other content")
                return Append(nodes=(known if delta == "again" else other,))
            case "replace" | "replace wrong":
                count = len(live) + (delta == "replace wrong")
                nodes = self._chain(None, size)
                return ReplaceFull(nodes=nodes, leaf_node_id=nodes[-1].node_id, replaced_node_count=count)
            case "orphan":
                return Append(nodes=self._chain("none", size))
            case "branch":
                parent, leaf = chosen, _pick([*live, None], place // 2, None)
            case _:
                parent = history.leaf
        return Append(nodes=self._chain(parent, size), leaf_node_id=leaf)

    def _chain(self, parent: str | None, size: int) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for _ in range(size):
            nodes.append(node(f"n{self._number()}", nodes[-1].node_id if nodes else parent))
        return tuple(nodes)


def _frames(history: History, frames: str) -> tuple[AgentFrame, ...]:
    """Return the frames of a commit; of two, the second is the current one."""
    first = AgentFrame(frame_id="f", created_at=MOMENT)
    second = AgentFrame(frame_id="g", previous_frame_id="f", created_at=MOMENT)
    match frames:
        case "none":
            return ()
        case "plain":
            return (first, second)
        case "keep":
            return () if history.saved is None else history.saved.frames
        case "unknown":
            return (first, msgspec.structs.replace(second, execution_state_ref=MISSING))
    return (first, msgspec.structs.replace(second, execution_state=BYTES[frames.removeprefix("with ")]))


def _state(history: History, state: str) -> dict[str, bytes | BlobRef]:
    """Return the components of a commit: bytes, refs of bytes that the session holds, or an unknown ref."""
    held = {} if history.saved is None else history.saved.manifest.components
    match state:
        case "none":
            return {}
        case "keep":
            return dict(held)
        case "move":
            return {f"{key}'"[:4]: ref for key, ref in held.items()}
        case "unknown":
            return {"x": BYTES["x"], "unknown": MISSING}
    return {name: BYTES[name] for name in state.split()}


def _pick(known: Sequence[T], place: int, default: T) -> T:
    return known[place % len(known)] if known else default


async def _vacuum(side: Side, session_id: str) -> int:
    return (await side.storage.session(session_id).vacuum()).removed_node_count


async def _found(storage: Storage, wanted: SessionFilter) -> list[str]:
    return [each.meta.session_id for each in (await storage.sessions.list(wanted)).sessions]


async def _audit(side: Side) -> bool:
    return (await side.storage.maintenance.collect_garbage(dry_run=True)).is_clean
