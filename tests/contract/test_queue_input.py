"""The contract of work that cannot be queued and of invalid calls: refused, and nothing changes."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from lash.errors import LashError
from lash.model.lease import LeaseFence
from lash.model.queue import BatchDraft, Boundary, Claim, ProcessWake, SessionCommand, TextItem, TurnInput
from lash.stores.queue import QueueStore
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG, TTL, claimed, joining, late, leased, observe_queue, queued
from tests.factories.session import started

TEXT: Final = TurnInput.of_text("hello")
WAKE: Final = ProcessWake(wake_id="w", process_id="p", sequence=1)
COMMAND: Final = SessionCommand(command="reset")

BAD_DRAFTS: Final[dict[str, dict[str, Any]]] = {
    "session missing": {"session_id": None},
    "session blank": {"session_id": " "},
    "session with NUL": {"session_id": "s\0"},
    "source key blank": {"source_key": ""},
    "source key with NUL": {"source_key": "k\0"},
    "source key too long": {"source_key": "k" * 256},
    "source key with a surrogate": {"source_key": "\ud800"},
    "source key as number": {"source_key": 7},
    "merge key blank": {"merge_key": " "},
    "merge key with NUL": {"merge_key": "\0"},
    "merge key as tuple": {"merge_key": ("g",)},
    "delivery unknown": {"delivery": "tomorrow"},
    "delivery as text": {"delivery": "earliest_safe_boundary"},
    "delivery missing": {"delivery": None},
    "slot unknown": {"slot": "window"},
    "slot as text": {"slot": "join"},
    "slot as list": {"slot": ["join"]},
    "available before time zero": {"available_at_ms": -1},
    "available too late": {"available_at_ms": 2**63},
    "available at a fraction": {"available_at_ms": 1.5},
    "available as bool": {"available_at_ms": True},
    "payloads missing": {"payloads": None},
    "no payload": {"payloads": ()},
    "a single payload": {"payloads": TEXT},
    "payload as text": {"payloads": ("hello",)},
    "payload as mapping": {"payloads": ({"kind": "turn_input", "items": []},)},
    "mixed payloads": {"payloads": (TEXT, WAKE)},
    "command among input": {"payloads": (TEXT, COMMAND)},
    "items of another type": {"payloads": (TurnInput(items="text"),)},  # type: ignore[arg-type]
    "item of another type": {"payloads": (TurnInput(items=("text",)),)},  # type: ignore[arg-type]
    "text missing": {"payloads": (TurnInput(items=(TextItem(text=None),)),)},  # type: ignore[arg-type]
    "text with a surrogate": {"payloads": (TurnInput.of_text("\ud800"),)},
    "options not JSON": {"payloads": (TurnInput(items=(), protocol_turn_options={"k": math.nan}),)},
    "sequence below zero": {"payloads": (msgspec.structs.replace(WAKE, sequence=-1),)},
    "sequence huge": {"payloads": (msgspec.structs.replace(WAKE, sequence=2**64),)},
    "wake input huge": {"payloads": (msgspec.structs.replace(WAKE, input=2**63),)},
    "wake input not JSON": {"payloads": (msgspec.structs.replace(WAKE, input={1: 2}),)},
    "command missing": {"payloads": (SessionCommand(command=None),)},  # type: ignore[arg-type]
}
"""Changes that make a draft invalid."""


class Known(NamedTuple):
    """Arguments for a call: the queue, a live fence, and a live claim under it."""

    queue: QueueStore
    fence: LeaseFence
    claim: Claim

    def with_fence(self, **changes: Any) -> LeaseFence:  # noqa: ANN401 - wrong types are the point
        return msgspec.structs.replace(self.fence, **changes)

    def with_claim(self, **changes: Any) -> Claim:  # noqa: ANN401 - wrong types are the point
        return msgspec.structs.replace(self.claim, **changes)


BadCall: TypeAlias = Callable[[Known], Awaitable[object]]

_IDLE: Final = Boundary.IDLE
_WRONG: Final[Any] = None

BAD_CALLS: Final[dict[str, BadCall]] = {
    "draft missing": lambda known: known.queue.enqueue(_WRONG),
    "fence missing": lambda known: known.queue.claim(_WRONG, boundary=_IDLE, ttl_ms=TTL),
    "fence as claim": lambda known: known.queue.claim_command(known.claim, ttl_ms=TTL),  # type: ignore[arg-type]
    "fence with a bad number": lambda known: known.queue.claim_command(known.with_fence(fencing=-1), ttl_ms=TTL),
    "fence with a huge number": lambda known: known.queue.claim_command(known.with_fence(fencing=2**64), ttl_ms=TTL),
    "fence with NUL": lambda known: known.queue.claim(known.with_fence(token="\0"), boundary=_IDLE, ttl_ms=TTL),
    "boundary as text": lambda known: known.queue.claim(known.fence, boundary="idle", ttl_ms=TTL),  # type: ignore[arg-type]
    "boundary unknown": lambda known: known.queue.claim(known.fence, boundary="now", ttl_ms=TTL),  # type: ignore[arg-type]
    "boundary missing": lambda known: known.queue.claim(known.fence, boundary=_WRONG, ttl_ms=TTL),
    "claim size below zero": lambda known: known.queue.claim(known.fence, boundary=_IDLE, ttl_ms=TTL, max_batches=-1),
    "claim size huge": lambda known: known.queue.claim(known.fence, boundary=_IDLE, ttl_ms=TTL, max_batches=2**64),
    "claim size too large": lambda known: known.queue.claim(known.fence, boundary=_IDLE, ttl_ms=TTL, max_batches=1_001),
    "claim size as bool": lambda known: known.queue.claim(known.fence, boundary=_IDLE, ttl_ms=TTL, max_batches=True),
    "ttl below zero": lambda known: known.queue.claim(known.fence, boundary=_IDLE, ttl_ms=-1),
    "ttl of days": lambda known: known.queue.claim_command(known.fence, ttl_ms=86_400_001),
    "ttl as float": lambda known: known.queue.claim_batches(known.fence, ["a"], ttl_ms=1.5),  # type: ignore[arg-type]
    "ids as one text": lambda known: known.queue.claim_batches(known.fence, "abc", ttl_ms=TTL),
    "ids missing": lambda known: known.queue.claim_batches(known.fence, _WRONG, ttl_ms=TTL),
    "an id twice": lambda known: known.queue.claim_batches(known.fence, ["a", "a"], ttl_ms=TTL),
    "an id blank": lambda known: known.queue.claim_batches(known.fence, ["a", ""], ttl_ms=TTL),
    "too many ids": lambda known: known.queue.claim_batches(known.fence, [str(n) for n in range(1_001)], ttl_ms=TTL),
    "renew nothing": lambda known: known.queue.renew(_WRONG, ttl_ms=TTL),
    "renew a fence": lambda known: known.queue.renew(known.fence, ttl_ms=TTL),  # type: ignore[arg-type]
    "renew without batches": lambda known: known.queue.renew(known.with_claim(batches=()), ttl_ms=TTL),
    "renew with a bad token": lambda known: known.queue.renew(known.with_claim(token=""), ttl_ms=TTL),
    "renew for days": lambda known: known.queue.renew(known.claim, ttl_ms=2**40),
    "renew without a session": lambda known: known.queue.renew(known.with_claim(session_id=""), ttl_ms=TTL),
    "abandon nothing": lambda known: known.queue.abandon(_WRONG),
    "abandon a completion": lambda known: known.queue.abandon(known.claim.completion),  # type: ignore[arg-type]
    "abandon with a bad id": lambda known: known.queue.abandon(known.with_claim(claim_id="\0")),
    "cancel without a session": lambda known: known.queue.cancel("", "a"),
    "cancel nothing": lambda known: known.queue.cancel("s", _WRONG),
    "cancel with NUL": lambda known: known.queue.cancel("s", "a\0"),
    "list without a session": lambda known: known.queue.list(_WRONG),
    "list of nothing": lambda known: known.queue.list("s", limit=0),
    "list too long": lambda known: known.queue.list_pending("s", limit=1_001),
    "list behind nothing": lambda known: known.queue.list("s", after_seq=-1),
    "list behind everything": lambda known: known.queue.list_pending("s", after_seq=2**63),
    "ready sessions none": lambda known: known.queue.ready_sessions(limit=0),
    "ready sessions too many": lambda known: known.queue.ready_sessions(limit=1_001),
    "ready sessions behind NUL": lambda known: known.queue.ready_sessions(after="\0"),
    "ready sessions behind a number": lambda known: known.queue.ready_sessions(after=5),  # type: ignore[arg-type]
}
"""Calls that are invalid in every state of a queue."""


class TestQueueInput:
    """Every bad value raises InvalidInput and leaves the queue unchanged."""

    async def test_a_bad_draft_is_refused(self, harness: Harness) -> None:
        """Wrong types, mixed kinds, unknown labels and text that cannot be stored are refused."""
        good = late("hello", source_key="k")
        drafts = {name: msgspec.structs.replace(good, **changes) for name, changes in BAD_DRAFTS.items()}
        await _refused(harness, {name: _enqueue(draft) for name, draft in drafts.items()})

    async def test_a_bad_call_is_refused(self, harness: Harness) -> None:
        """Arguments of the wrong type or range are refused."""
        await _refused(harness, BAD_CALLS)

    async def test_what_is_unusual_but_storable_is_queued(self, harness: Harness) -> None:
        """The longest keys, unusual characters and the last moment of time are accepted."""
        storage = await harness.open()
        await started(storage)
        odd = {"source_key": "k" * 255, "merge_key": "'; -- \N{PILE OF POO}", "available_at_ms": 2**63 - 2}
        (batch,) = await queued(storage, msgspec.structs.replace(joining("x"), **odd))
        assert (batch.source_key, batch.merge_key, batch.available_at_ms) == tuple(odd.values())
        fence = await leased(storage)
        await queued(storage, joining("y"))
        claim = claimed(await storage.queue.claim(fence, boundary=_IDLE, ttl_ms=86_400_000, max_batches=1_000))
        assert claim.expires_at_ms == harness.clock.now_ms() + 86_400_000
        assert await storage.queue.list("s", after_seq=2**63 - 1) == ()
        assert await storage.queue.ready_sessions(limit=1_000, after="unknown") == ()


def _enqueue(draft: BatchDraft) -> BadCall:
    return lambda known: known.queue.enqueue(draft)


async def _refused(harness: Harness, calls: dict[str, BadCall]) -> None:
    """Assert that every call raises InvalidInput with a message, and that nothing changed."""
    storage = await harness.open()
    await started(storage)
    fence = await leased(storage, ttl_ms=LONG)
    await queued(storage, joining("a"), late("b"))
    claim = claimed(await storage.queue.claim(fence, boundary=_IDLE, ttl_ms=TTL))
    known = Known(storage.queue, fence, claim)
    before = await observe_queue(storage)
    outcomes = {name: await _outcome(known, call) for name, call in calls.items()}
    assert outcomes == dict.fromkeys(calls, "InvalidInput with a message")
    assert await observe_queue(storage) == before
    assert await storage.queue.renew(claim, ttl_ms=0) == claim


async def _outcome(known: Known, call: BadCall) -> str:
    try:
        return f"accepted: {await call(known)!r:.80}"
    except LashError as error:
        return f"{type(error).__name__} {'with' if str(error) else 'without'} a message"
    except Exception as error:  # noqa: BLE001 - an error that is not lash's own is what the test is to show
        return f"a foreign error: {error!r:.80}"
