"""The conversation before one turn, of which only as much is read as the agent asks for."""

from __future__ import annotations

from typing import Final

from lash.errors import InvalidInput
from lash.model.effect import CheckpointPoint, Envelope, TurnCheckpoint, TurnScope
from lash.model.lease import LeaseFence
from lash.model.session.message import Message
from lash.model.session.node import RawNode
from lash.model.value import JSON
from lash.runtime.errors import Suspended
from lash.runtime.outage import HeldLease
from lash.runtime.steps.journal import Journal
from lash.runtime.turns.branches import BranchPoint
from lash.runtime.turns.history import ALL, LEAST_NODES, Histories, History
from lash.runtime.turns.messages import check_last, last_of, read_tail
from lash.stores.storage import Storage

_READING: Final = "reading the conversation"
_KEY: Final = "history"
_SEEN: Final = TurnCheckpoint(checkpoint=CheckpointPoint.BEFORE_COMPLETION)
_REMEMBERED_TURNS: Final = 100
"""For at least so many turns an agent's longest read is remembered: one long read does not make all later ones long."""


class Reach:
    """How many messages before a turn the recent turns of one agent have asked for."""

    def __init__(self) -> None:
        self._now = 0
        self._before = 0
        self._turns = 0

    @property
    def messages(self) -> int:
        """The most that one of these turns asked for."""
        return max(self._now, self._before)

    def begin_turn(self) -> None:
        """Count a turn."""
        self._turns += 1
        if self._turns > _REMEMBERED_TURNS:
            self._now, self._before, self._turns = 0, self._now, 1

    def ask(self, messages: int) -> None:
        """Note what a turn asks for."""
        self._now = max(self._now, messages)


class Past:
    """What one turn sees of the conversation before it: the messages up to one node, whatever is committed since.

    The agent reads it without waiting. Before the agent starts, as many messages are loaded as its recent turns have
    asked for. If it asks for more, it has to start again after `widen`.
    """

    def __init__(self, storage: Storage, histories: Histories, session_id: str, lease: HeldLease) -> None:
        self._storage = storage
        self._lease = lease
        self._histories = histories
        self._session_id = session_id
        self._leaf_node_id: str | None = None
        self._reach = Reach()
        self._wanted = 0
        self._branch: BranchPoint | None = None
        self.history = self._seen = History()
        """The session as it was read last; what the turn commits follows it."""
        self.is_short = False
        """Whether the agent has asked for more than was loaded."""

    async def load(self, revision: int | None = None, leaf_node_id: str | None = None) -> None:
        """Load the history as it stands, with its last messages; of this revision and leaf if the caller has them."""
        load, storage, session_id = self._histories.load, self._storage, self._session_id
        self.history = await self._lease.bridge(
            _READING, load, storage, session_id, revision=revision, leaf_node_id=leaf_node_id
        )

    async def begin(self, journal: Journal, reach: Reach, branch: BranchPoint | None) -> None:
        """Show the conversation as it stands, as an earlier attempt of the turn saw it, or up to a branch."""
        self._branch = branch
        if branch is not None:
            await self._check_parent(branch)
            self._leaf_node_id = branch.shown
        else:
            seen = journal.peek(_KEY, _SEEN)
            self._leaf_node_id = self.history.leaf_node_id if seen is None else _leaf(seen.outcome)
        self._reach = reach
        reach.begin_turn()
        await self.widen()

    @property
    def parent_node_id(self) -> str | None:
        """The node that the first one of the turn follows."""
        return self.history.leaf_node_id if self._branch is None else self._branch.parent

    async def remember(self, scope: TurnScope, fence: LeaseFence) -> None:
        """Record where the conversation ended before this turn, if it has recorded steps that may depend on it.

        A later attempt must see the same one, even after other commits: a requeued dead letter runs late.
        """
        effects = self._storage.effects
        if await self._lease.bridge("reading the steps", effects.list, scope, limit=1):
            envelope = Envelope(scope=scope, replay_key=_KEY, command=_SEEN)
            outcome: JSON = {"leaf_node_id": self._leaf_node_id}
            await self._lease.bridge("the end of the conversation", effects.record, fence, envelope, outcome)

    async def widen(self) -> None:
        """Load as many messages as the agent has asked for."""
        self.is_short = False
        last, leaf = max(self._wanted, self._reach.messages), self._leaf_node_id
        if leaf == self.history.leaf_node_id and not self.history.holds(last):
            # Another writer may commit meanwhile, so that the history ends with another node afterwards.
            self.history = await self._load_last(last)
        if leaf == self.history.leaf_node_id:
            self._seen = self.history
        elif leaf is None:
            self._seen = History()
        else:
            self._seen = await self._up_to(leaf, last)

    def messages(self, last: int | None, own: list[Message]) -> list[Message]:
        """Return the conversation with the turn's own messages, or the last so many; raise Suspended if it is short."""
        wanted = ALL if check_last(last) is None else max(0, (last or 0) - len(own))
        self._reach.ask(wanted)
        if not self._seen.holds(wanted):
            self._wanted, self.is_short = wanted, True
            raise Suspended
        return last_of([*self._seen.messages(wanted), *own], last)

    async def raw_path(self, last: int | None) -> tuple[RawNode, ...]:
        """Return the nodes that the turn sees, not decoded, or the last so many."""
        if self._leaf_node_id is None:
            return ()
        session = self._storage.session(self._session_id)
        return await self._lease.bridge(_READING, session.raw_path, last=last, leaf_node_id=self._leaf_node_id)

    async def _check_parent(self, branch: BranchPoint) -> None:
        """Raise InvalidInput if the node that a branch starts at was removed since the message was sent."""
        if branch.parent is None:
            return
        session = self._storage.session(self._session_id)
        if await self._lease.bridge(_READING, session.node, branch.parent) is None:
            raise InvalidInput(f"node {branch.parent!r}, at which this message starts a branch, was removed")

    async def _up_to(self, leaf_node_id: str, last: int) -> History:
        """Return the conversation up to a node; all of it if the node is gone."""
        session, wanted = self._storage.session(self._session_id), None if last == ALL else last
        tail = await self._lease.bridge(
            _READING, read_tail, session, wanted, leaf_node_id=leaf_node_id, least_nodes=LEAST_NODES
        )
        if tail is not None and not tail.is_empty:
            return await History.of(tail)
        return await self._load_last(last)

    async def _load_last(self, last: int) -> History:
        load = self._histories.load
        return await self._lease.bridge(_READING, load, self._storage, self._session_id, last=last)


def _leaf(outcome: JSON) -> str | None:
    leaf = outcome.get("leaf_node_id") if isinstance(outcome, dict) else None
    return None if leaf is None else str(leaf)
