"""Operations for the fault tests: writes of every noun, each of which may be retried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from lash.model.effect import TurnScope
from lash.model.wait import CustomIdentity
from lash.stores.storage import Storage
from tests.contract.queue_state import late
from tests.factories.effect import effect
from tests.factories.process import NEWS, event, external, news, process
from tests.factories.session import acquired, append, commit, draft, node, owner, spent
from tests.factories.trigger import pressed, trigger
from tests.factories.wait import YES

Operation = Callable[[Storage, int], Awaitable[object]]
"""Performs one write per round. A retry after a lost reply changes nothing and raises nothing."""

_SESSION: Final = "s"
_BURST: Final = 6
_BYTES: Final = 3_000


def content_of(number: int) -> bytes:
    """Return the bytes of a round's attachment."""
    return f"attachment {number} ".encode() * 300


async def _create(storage: Storage, number: int) -> object:
    await storage.sessions.create(_SESSION)
    return await storage.sessions.create(f"{_SESSION}{number}")


async def _commit(storage: Storage, number: int) -> object:
    turn = f"turn {number}"
    before = f"n{number - 1}" if number else None
    # The first attempt may have been applied: then the revision differs, and the turn's stored result is returned.
    return await storage.session(_SESSION).commit(
        commit(
            number,
            turn_id=turn,
            graph=append(node(f"n{number}", before, "text " * 50)),
            checkpoint=draft(number, {"tool_state": turn.encode() * _BYTES}),
            usage=(spent(number + 1, 2),),
        )
    )


async def _enqueue(storage: Storage, number: int) -> object:
    return await storage.queue.enqueue(late(f"message {number}", source_key=f"key {number}"))


async def _burst(storage: Storage, number: int) -> object:
    drafts = [late("x" * 100, source_key=f"burst {number} {each}") for each in range(_BURST)]
    return await asyncio.gather(*(storage.queue.enqueue(each) for each in drafts))


async def _register(storage: Storage, number: int) -> object:
    await storage.processes.register(process(f"p{number}"))
    return await storage.processes.register(external(f"e{number}", NEWS, wake_session_id=_SESSION))


async def _append(storage: Storage, number: int) -> object:
    await storage.events.append(f"p{number}", event(payload={"round": number}, key="first"))
    return await storage.events.append(f"e{number}", news(key="news"))


async def _record(storage: Storage, number: int) -> object:
    lease = acquired(await storage.leases.claim(_SESSION, owner("worker"), ttl_ms=600_000))
    scope = TurnScope(session_id=_SESSION, turn_id=f"later {number}")
    return await storage.effects.record(lease.fence, effect("model", scope=scope), {"answer": number})


async def _resolve(storage: Storage, number: int) -> object:
    key = await storage.waits.key(TurnScope(session_id=_SESSION, turn_id="later"), CustomIdentity(key=f"w{number}"))
    await storage.waits.open(key)
    return await storage.waits.resolve(key, YES)


async def _emit(storage: Storage, number: int) -> object:
    await storage.triggers.register(trigger())
    return await storage.occurrences.emit(pressed(str(number)))


async def _attach(storage: Storage, number: int) -> object:
    return await storage.attachments.put(_SESSION, content_of(number), "text/plain")


async def _artifact(storage: Storage, number: int) -> object:
    return await storage.artifacts.put("code", b"artifact %d" % number)


OPERATIONS: Final[dict[str, Operation]] = {
    "create": _create,
    "commit": _commit,
    "enqueue": _enqueue,
    "burst": _burst,
    "register": _register,
    "append": _append,
    "record": _record,
    "resolve": _resolve,
    "emit": _emit,
    "attach": _attach,
    "artifact": _artifact,
}
