"""The contract of recording under a lease, and of scopes whose owner does not exist."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from lash.errors import (
    Conflict,
    InvalidInput,
    LeaseLost,
    ProcessNotFound,
    ProcessPruned,
    SessionDeleted,
    SessionNotFound,
)
from lash.model.effect import (
    EffectStatus,
    ProcessScope,
    TurnScope,
)
from lash.testing.harness import Harness
from tests.contract.effect_state import ANN, BOB, TTL, refuse, stored
from tests.factories.effect import (
    OPERATION,
    RUN,
    TURN,
    claimed,
    effect,
    everywhere,
    in_session,
    replayed,
)
from tests.factories.process import DONE, process_lease, registered
from tests.factories.session import acquired, owner


class TestEffectFence:
    """Laws of recording under a lease, and of scopes whose owner does not exist."""

    async def test_only_the_live_lease_of_the_scope_records(self, harness: Harness) -> None:
        """A released, lapsed, superseded or foreign fence records nothing."""
        storage = await harness.open()
        lapsed = await in_session(storage, ttl_ms=TTL)
        await harness.clock.advance(TTL)
        await refuse(storage, storage.effects.record(lapsed, effect(), 1), LeaseLost, naming="'s'")
        live = acquired(await storage.leases.claim("s", BOB, ttl_ms=60_000)).fence
        await refuse(storage, storage.effects.record(lapsed, effect(), 1), LeaseLost)
        forged = msgspec.structs.replace(live, token="forged")
        await refuse(storage, storage.effects.record(forged, effect(), 1), LeaseLost)
        other = await in_session(storage, "other")
        await refuse(storage, storage.effects.record(other, effect(), 1), LeaseLost, naming="'s'")
        await storage.effects.record(live, effect(), 1)
        await storage.leases.release(live)
        # A worker that lost the lease must stop, even if its work is already recorded.
        await refuse(storage, storage.effects.record(live, effect(), 1), LeaseLost)

    async def test_a_process_records_under_its_own_lease(self, harness: Harness) -> None:
        """A process's lease records its effects; a fence of another kind does not."""
        storage = await harness.open()
        session = await in_session(storage)
        await registered(storage, "p", "q")
        mine, others = [
            process_lease(await storage.process_leases.claim(name, ANN, ttl_ms=TTL)).fence for name in ("p", "q")
        ]
        envelope = effect(scope=RUN)
        record = await storage.effects.record(mine, envelope, 1)
        assert (record.scope, record.outcome) == (RUN, 1)
        assert await storage.effects.record(mine, envelope, 2) == record
        for fence in (others, session):
            call = storage.effects.record(fence, effect("new", scope=RUN), 1)
            await refuse(storage, call, LeaseLost, naming="'p'", scope=RUN)
        await refuse(storage, storage.effects.record(mine, effect(), 1), LeaseLost, naming="'s'")
        await harness.clock.advance(TTL)
        await refuse(storage, storage.effects.record(mine, effect("new", scope=RUN), 1), LeaseLost, scope=RUN)

    async def test_an_operation_has_no_lease(self, harness: Harness) -> None:
        """An effect of an operation cannot be recorded without a claim: it has no lease."""
        storage = await harness.open()
        fence = await in_session(storage)
        call = storage.effects.record(fence, effect(scope=OPERATION), 1)
        await refuse(storage, call, InvalidInput, naming="claim", scope=OPERATION)
        call = storage.effects.record(cast("Any", owner("x")), effect(), 1)
        await refuse(storage, call, InvalidInput, naming="LeaseFence")

    async def test_what_was_begun_is_finished_under_its_claim(self, harness: Harness) -> None:
        """A claimed effect, live or lapsed, cannot be recorded past its claim."""
        storage = await harness.open()
        fence = await in_session(storage)
        claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=True))
        await refuse(storage, storage.effects.record(fence, effect(), 1), Conflict, naming="'k'")
        await harness.clock.advance(TTL)
        await refuse(storage, storage.effects.record(fence, effect(), 1), Conflict, naming="claim")
        assert (await stored(storage)).status is EffectStatus.IN_PROGRESS

    async def test_missing_owners_are_named(self, harness: Harness) -> None:
        """A session or process that never existed, was deleted or was pruned is named; nothing is written."""
        storage = await harness.open()
        fence = await in_session(storage, "gone")
        await storage.sessions.delete("gone")
        await registered(storage, "pruned")
        run = process_lease(await storage.process_leases.claim("pruned", ANN, ttl_ms=TTL)).fence
        await storage.processes.complete("pruned", DONE)
        await harness.clock.advance(1)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        gone, pruned = TurnScope(session_id="gone", turn_id="t"), ProcessScope(process_id="pruned")
        for scope, error in (
            (TURN, SessionNotFound),
            (gone, SessionDeleted),
            (RUN, ProcessNotFound),
            (pruned, ProcessPruned),
        ):
            for call in (
                storage.effects.claim(effect(scope=scope), ANN, ttl_ms=TTL),
                storage.effects.claim(effect(scope=scope), ANN, ttl_ms=TTL, strict=True),
                storage.effects.take_over(effect(scope=scope), ANN, ttl_ms=TTL),
                storage.effects.get(scope, "k"),
                storage.effects.list(scope),
                storage.effects.group(scope, "g"),
                storage.effects.open_group(scope, "g", size=1),
            ):
                with pytest.raises(error):
                    await call
            assert await storage.effects.retire(scope) == 0
        with pytest.raises(SessionDeleted):
            await storage.effects.record(fence, effect(scope=gone), 1)
        with pytest.raises(ProcessPruned):
            await storage.effects.record(run, effect(scope=pruned), 1)

    async def test_all_kinds_of_scopes_take_claims(self, harness: Harness) -> None:
        """Effects of sessions, processes and operations can all be claimed and finished."""
        storage = await harness.open()
        for scope in await everywhere(storage):
            claim = claimed(await storage.effects.claim(effect(scope=scope), ANN, ttl_ms=TTL))
            record = await storage.effects.finish(claim, 1)
            assert replayed(await storage.effects.claim(effect(scope=scope), BOB, ttl_ms=TTL)) == record
