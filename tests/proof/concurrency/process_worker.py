"""A process that registers, appends to, claims, parks, ends and cancels shared processes at random until it is killed.

``python -m tests.proof.concurrency.process_worker URL NAME`` prints one JSON object for each acknowledged call,
after the acknowledgement.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import lash
from lash.errors import Conflict, LeaseLost, StoreUnavailable
from lash.model.lease import Lease, LeaseOwner
from lash.model.process.event import Appended
from lash.model.process.process import ProcessAcquired, ProcessRefused, Recovery, RefusalReason, Success
from lash.model.value import JSON, JSONObject
from lash.stores.storage import Storage
from tests.factories.process import GO, NEWS, NOTE, event, news, process

_SHARED: Final = 6
_SECONDS: Final = 3
"""How many processes are shared at a time, and after how many seconds there are new ones."""
_TTL_MS: Final = 150

Act: TypeAlias = Callable[["Worker", str], Awaitable[None]]


class Worker:
    """One worker, and what it holds."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._owner: LeaseOwner = lash.current_owner(name)
        self._held: dict[str, Lease] = {}
        self._reasons: dict[str, int] = {}
        self._count = 0

    async def run(self) -> None:
        """Make calls until killed. Lost leases and conflicts are expected."""
        while True:
            process_id = f"g{int(time.time()) // _SECONDS}-{random.randrange(_SHARED)}"
            bound = process_id.endswith("0")
            recovery = Recovery.OWNER_BOUND if bound else Recovery.RERUNNABLE
            await self._storage.processes.register(
                process(process_id, NOTE, NEWS, GO, recovery=recovery, wake_session_id="s")
            )
            for act in random.choices(_ACTS, weights=_WEIGHTS, k=6):
                try:
                    await act(self, process_id)
                except (Conflict, LeaseLost, StoreUnavailable):
                    self._held.pop(process_id, None)

    async def append(self, process_id: str) -> None:
        payload = self._unique()
        self._say_appended(await self._storage.events.append(process_id, event(payload=payload)), payload)

    async def append_twice(self, process_id: str) -> None:
        payload = self._unique()
        draft = event(payload=payload, key=f"{payload}")
        answers = await asyncio.gather(*(self._storage.events.append(process_id, draft) for _ in range(2)))
        for answer in answers:
            self._say_appended(answer, payload)

    async def wake(self, process_id: str) -> None:
        payload: JSONObject = {"text": self._unique()}
        self._say_appended(await self._storage.events.append(process_id, news(str(payload["text"]))), payload)

    async def signal(self, process_id: str) -> None:
        payload = self._unique()
        answer = await self._storage.events.signal(process_id, "go", signal_id=payload, payload=payload)
        self._say_appended(answer, payload)

    async def cancel(self, process_id: str) -> None:
        await self._storage.processes.request_cancel(process_id, reason=self._name)
        _say(did="cancel", process=process_id, reason=self._name)

    async def claim(self, process_id: str) -> None:
        leases = self._storage.process_leases
        outcome = await leases.claim(process_id, self._owner, ttl_ms=_TTL_MS)
        if isinstance(outcome, ProcessRefused) and outcome.holder is not None and outcome.reason is RefusalReason.BUSY:
            outcome = await leases.reclaim(process_id, self._owner, observed=outcome.holder, ttl_ms=_TTL_MS)
        if isinstance(outcome, ProcessAcquired):
            self._held[process_id] = outcome.lease
            self._reasons[process_id] = outcome.wake_seq
            _say(
                did="claim",
                process=process_id,
                fencing=outcome.lease.fencing,
                token=outcome.lease.token,
                sequence=outcome.record.last_sequence,
                owner=self._name,
            )

    async def renew(self, process_id: str) -> None:
        if process_id in self._held:
            await self._storage.process_leases.renew(self._held[process_id].fence, ttl_ms=_TTL_MS)

    async def park(self, process_id: str) -> None:
        if process_id in self._held:
            fence, seen = self._held.pop(process_id).fence, self._reasons[process_id]
            until_ms = random.choice((None, 0, 2**62))
            parked = await self._storage.process_leases.park(fence, wake_seq=seen, until_ms=until_ms)
            _say(did="park", process=process_id, parked=parked)

    async def finish(self, process_id: str) -> None:
        if process_id in self._held:
            lease = self._held.pop(process_id)
            outcome: JSONObject = {"by": self._unique(), "fencing": lease.fencing}
            await self._storage.process_leases.complete(lease.fence, Success(value=outcome))
            _say(did="end", process=process_id, outcome=outcome)

    async def end(self, process_id: str) -> None:
        outcome: JSONObject = {"by": self._unique(), "fencing": None}
        await self._storage.processes.complete(process_id, Success(value=outcome))
        _say(did="end", process=process_id, outcome=outcome)

    def _unique(self) -> str:
        self._count += 1
        return f"{self._name}:{self._count}"

    def _say_appended(self, appended: Appended, payload: JSON) -> None:
        found = appended.event
        _say(did="append", process=found.process_id, sequence=found.sequence, payload=payload)


_ACTS: Final[tuple[Act, ...]] = (
    Worker.append,
    Worker.append_twice,
    Worker.wake,
    Worker.signal,
    Worker.cancel,
    Worker.claim,
    Worker.renew,
    Worker.park,
    Worker.finish,
    Worker.end,
)
_WEIGHTS: Final = (30, 15, 10, 15, 4, 40, 8, 8, 8, 1)


def _say(**what: JSON) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def _work(url: str, name: str) -> None:
    async with await lash.open(url) as storage:
        worker = Worker(storage, name)
        await worker.run()


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
