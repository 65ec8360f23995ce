"""A client of an app and its storage that makes random calls of all kinds, beside the app's own worker."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

import lash
from lash.base.ids import new_id
from lash.errors import ClaimLost, Conflict, EffectLeaseLost, LeaseLost, StoreUnavailable
from lash.model.effect import EffectClaimed, OperationScope, ProcessScope
from lash.model.process.process import ProcessAcquired
from lash.model.record import RecordPut
from lash.model.session.message import Role
from lash.model.wait import CustomIdentity, Resolved
from tests.contract.queue_state import consuming, joining, texts
from tests.factories.effect import effect
from tests.factories.process import NOTE, event, external
from tests.factories.session import commit, node, spent

GENERATION_S: Final = 3
"""After how many seconds all clients switch to new sessions and processes, so that none grows without bound."""
SHARED: Final = 3
"""How many sessions, and how many processes of each kind, are shared at a time."""
TTL_MS: Final = 300
_THINKING_S: Final = 0.02
_DAWDLING_S: Final = 0.5

_TOO_LATE: Final = (Conflict, LeaseLost, ClaimLost, LeaseLost, EffectLeaseLost, StoreUnavailable)

Act: TypeAlias = Callable[["Client"], Awaitable[None]]
Chain: TypeAlias = "lash.ProcessDefinition[[int], list[str]]"


class Client:
    """One client; lost leases and conflicts are expected."""

    def __init__(self, app: lash.App, chain: Chain, name: str, chance: random.Random) -> None:
        self._app = app
        self._chain = chain
        self._storage = app.storage
        self._name = name
        self._chance = chance
        self._owner = lash.current_owner(name)
        self._numbers = itertools.count()
        self._said: list[tuple[str, str]] = []

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Make calls until the test ends."""
        while not is_over():
            (act,) = self._chance.choices(_ACTS, _WEIGHTS)
            with contextlib.suppress(*_TOO_LATE):
                await act(self)
            await asyncio.sleep(self._chance.uniform(0, _THINKING_S))

    # Sessions.

    async def say(self) -> None:
        """Send a message as an application does, sometimes a repeated one."""
        session_id, key = await self._session(), self._unique()
        if self._said and self._chance.random() < 0.2:
            session_id, key = self._chance.choice(self._said[-20:])
        await self._app.session(session_id).send(key, key=key)
        self._said.append((session_id, key))

    async def enqueue(self) -> None:
        """Enqueue an input that may share its turn with others."""
        key = self._unique()
        await self._storage.queue.enqueue(joining(key, session_id=await self._session(), source_key=key))

    async def turn(self) -> None:
        """Turn inputs into nodes under a lease, sometimes slowly, and not always with the fence."""
        session_id = await self._session()
        outcome = await self._storage.leases.claim(session_id, self._owner, ttl_ms=TTL_MS)
        if isinstance(outcome, lash.model.Busy):
            outcome = await self._storage.leases.reclaim(
                session_id, self._owner, observed=outcome.holder, ttl_ms=TTL_MS
            )
        if not isinstance(outcome, lash.model.Acquired):
            return
        fence = outcome.lease.fence
        claim = await self._storage.queue.claim(
            fence, boundary=lash.model.Boundary.IDLE, ttl_ms=TTL_MS, max_batches=self._chance.randint(1, 5)
        )
        if isinstance(claim, lash.model.Claim):
            try:
                await self._dawdle(fence)
                await self._consume(fence, claim)
            except lash.LashError:
                # A client that keeps it and returns under the same lease gets the work behind it, and overtakes itself.
                await self._storage.queue.abandon(claim, count_attempt=False)
                raise
        elif self._chance.random() < 0.8:
            await self._storage.leases.release(fence)

    async def _consume(self, fence: lash.model.LeaseFence, claim: lash.model.Claim) -> None:
        is_input = isinstance(claim.batches[0].payloads[0], lash.model.TurnInput)
        if not is_input or self._chance.random() < 0.1:
            await self._storage.queue.abandon(claim, count_attempt=False)
            await self._storage.leases.release(fence)
            return
        values = await self._next_commit(fence.resource.id, *texts(claim.batches))
        values = msgspec.structs.replace(
            values,
            fence=fence if self._chance.random() < 0.8 else None,
            release=fence if self._chance.random() < 0.7 else None,
        )
        await self._publish(consuming(values, claim))

    async def publish(self) -> None:
        """Commit without the lease, if no other client is first."""
        await self._publish(await self._next_commit(await self._session()))

    async def add(self) -> None:
        """Append a node to a session, whatever its head, sometimes twice at once."""
        session, turn_id = self._storage.session(await self._session()), self._unique()
        nodes = [node(new_id(), text="", role=Role.ASSISTANT) for _ in range(self._chance.randint(1, 2))]
        times = 2 if self._chance.random() < 0.2 else 1
        await asyncio.gather(*(session.append(nodes, turn_id=turn_id) for _ in range(times)))

    async def label(self) -> None:
        """Give a session an owner and one or two labels, all with the same text."""
        session, text = self._storage.session(await self._session()), self._unique()
        await session.edit(owner=text, labels=dict.fromkeys(("team", "lead")[: self._chance.randint(1, 2)], text))

    async def look(self) -> None:
        await self._storage.session(await self._session()).head()

    async def _next_commit(self, session_id: str, *keys: str) -> lash.model.Commit:
        """Return a commit after the current head: a node for each input, under new ids, and one more."""
        head = await self._storage.session(session_id).head()
        leaf = None if head is None else head.leaf_node_id
        nodes: list[lash.model.Node] = []
        for text in (*keys, ""):
            role = Role.USER if text else Role.ASSISTANT
            nodes.append(node(new_id(), nodes[-1].node_id if nodes else leaf, text, role=role))
        return commit(
            0 if head is None else head.revision,
            *nodes,
            session_id=session_id,
            turn_id=self._unique(),
            usage=(spent(1),),
        )

    async def _publish(self, values: lash.model.Commit) -> None:
        session = self._storage.session(values.session_id)
        await session.commit(values)
        if self._chance.random() < 0.1:
            await session.commit(values)

    async def _dawdle(self, fence: lash.model.LeaseFence) -> None:
        """Sleep, in the worst case longer than the lease; or renew it."""
        chance = self._chance.random()
        if chance < 0.2:
            await asyncio.sleep(self._chance.uniform(0, _DAWDLING_S))
        elif chance < 0.4:
            await self._storage.leases.renew(fence, ttl_ms=TTL_MS)

    # Processes.

    async def start(self) -> None:
        """Start a process of the app that wakes a session; the first client creates it."""
        wake = await self._session()
        process_id = self._shared("chain")
        if await self._storage.processes.get(process_id) is None:
            await self._app.starting(process_id=process_id, wake=wake).start(self._chain, 3)

    async def meddle(self) -> None:
        """Take a process from the workers for a while, record an event under the lease, and release it or not."""
        process_id = self._shared("chain")
        if await self._storage.processes.get(process_id) is None:
            return
        leases = self._storage.process_leases
        outcome = await leases.claim(process_id, self._owner, ttl_ms=TTL_MS)
        if not isinstance(outcome, ProcessAcquired):
            return
        fence = outcome.lease.fence
        if self._chance.random() < 0.2:
            await asyncio.sleep(self._chance.uniform(0, _DAWDLING_S))
        envelope = effect(f"meddling{self._chance.randrange(3)}", scope=ProcessScope(process_id=process_id))
        await self._storage.effects.record(fence, envelope, self._unique())
        await leases.renew(fence, ttl_ms=TTL_MS)
        chance = self._chance.random()
        if chance < 0.4:
            await leases.release(fence)
        elif chance < 0.8:
            await leases.park(fence, wake_seq=outcome.wake_seq, until_ms=0)

    async def append(self) -> None:
        """Append to a log shared by many clients, sometimes twice at once under one key."""
        process_id, payload = self._shared("log"), self._unique()
        await self._storage.processes.register(external(process_id, NOTE))
        draft = event(payload=payload, key=payload if self._chance.random() < 0.5 else None)
        times = 2 if draft.replay_key is not None else 1
        await asyncio.gather(*(self._storage.events.append(process_id, draft) for _ in range(times)))

    # Values that are set once.

    async def run_effect(self) -> None:
        """Run an effect that other clients request too, sometimes slowly."""
        envelope = effect(self._shared("key"), scope=OperationScope(operation_id="shared"))
        decision = await self._storage.effects.claim(envelope, self._owner, ttl_ms=TTL_MS)
        if isinstance(decision, EffectClaimed):
            if self._chance.random() < 0.2:
                await asyncio.sleep(self._chance.uniform(0, _DAWDLING_S))
            await self._storage.effects.finish(decision.claim, self._unique())

    async def resolve(self) -> None:
        identity = CustomIdentity(key=self._shared("wait"))
        key = await self._storage.waits.key(OperationScope(operation_id="shared"), identity)
        await self._storage.waits.resolve(key, Resolved(value=self._unique()))

    async def count(self) -> None:
        """Add one to a record of the storage, alone or with a commit, if no other client is first."""
        key = self._shared("count")
        found = await self._storage.records.get("counters", key)
        version, value = (0, 0) if found is None else (found.version, found.value)
        assert isinstance(value, int)
        if self._chance.random() < 0.5:
            await self._storage.records.put("counters", key, value + 1, expected_version=version)
            return
        put = RecordPut(collection="counters", key=key, value=value + 1, expected_version=version)
        values = await self._next_commit(await self._session())
        await self._storage.session(values.session_id).commit(msgspec.structs.replace(values, records=(put,)))

    async def emit(self) -> None:
        await self._app.emit("press", key=self._shared("press"))

    async def _session(self) -> str:
        session_id = self._shared("s")
        await self._storage.sessions.create(session_id)
        return session_id

    def _shared(self, kind: str) -> str:
        return f"{kind}-{int(time.monotonic()) // GENERATION_S}-{self._chance.randrange(SHARED)}"

    def _unique(self) -> str:
        return f"{self._name}:{next(self._numbers)}"


_ACTS: Final[tuple[Act, ...]] = (
    Client.say,
    Client.enqueue,
    Client.turn,
    Client.publish,
    Client.add,
    Client.look,
    Client.start,
    Client.meddle,
    Client.append,
    Client.run_effect,
    Client.resolve,
    Client.emit,
    Client.count,
    Client.label,
)
_WEIGHTS: Final = (15, 15, 25, 12, 12, 10, 4, 6, 12, 6, 4, 2, 12, 6)
