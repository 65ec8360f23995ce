"""When effects are removed: with the commit of their turn, their session or process, or when retired."""

from __future__ import annotations

import asyncio

import pytest

from lash.errors import Conflict, EffectLeaseLost, RevisionConflict, SessionDeleted, TurnConflict
from lash.model.effect import EffectStatus, ExecutionScope, TurnScope
from lash.model.process.process import Success
from lash.model.session.commit import CommitResult, ReplaceFull
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.effect_state import ANN, BOB, TTL, seen
from tests.factories.effect import OPERATION, RUN, TURN, claimed, effect, everywhere
from tests.factories.process import registered
from tests.factories.session import chain, commit, created, node, started


class TestEffectLife:
    """Laws of removing effects."""

    async def test_a_commit_retires_its_turn(self, harness: Harness) -> None:
        """A commit removes its turn's effects and groups; all other scopes keep theirs."""
        storage = await harness.open()
        await everywhere(storage)
        await created(storage, "other")
        kept: tuple[ExecutionScope, ...] = (
            TurnScope(session_id="s", turn_id="u"),
            TurnScope(session_id="other", turn_id="t"),
            RUN,
            OPERATION,
        )
        await _fill(storage, TURN, *kept)
        before = [await seen(storage, scope) for scope in kept]
        await storage.session("s").commit(commit(0, node("a"), turn_id="t"))
        assert await seen(storage) == ((), None)
        assert [await seen(storage, scope) for scope in kept] == before

    async def test_a_replacing_commit_retires_its_turn(self, harness: Harness) -> None:
        """A commit that replaces the whole graph retires its turn like any other."""
        storage = await harness.open()
        session = await started(storage)
        await _fill(storage, TURN)
        replaced = ReplaceFull(nodes=chain("x", "y"), replaced_node_count=1, leaf_node_id="y")
        await session.commit(commit(1, turn_id="t", graph=replaced))
        assert await seen(storage) == ((), None)

    async def test_other_commits_retire_nothing(self, harness: Harness) -> None:
        """A commit without a turn, of another turn, or one that is refused retires no effects."""
        storage = await harness.open()
        session = await created(storage)
        await _fill(storage, TURN)
        before = await seen(storage)
        await session.commit(commit(0, node("a")))
        await session.commit(commit(1, node("b", "a"), turn_id="u"))
        with pytest.raises(RevisionConflict):
            await session.commit(commit(1, node("c", "a"), turn_id="t"))
        assert await seen(storage) == before

    async def test_a_repeated_commit_retires_nothing_new(self, harness: Harness) -> None:
        """A repeat retires nothing more; one with other content is refused."""
        storage = await harness.open()
        session = await created(storage)
        turn = commit(0, node("a"), turn_id="t")
        first = await session.commit(turn)
        await _fill(storage, TURN)
        before = await seen(storage)
        assert await session.commit(turn) == first
        with pytest.raises(TurnConflict):
            await session.commit(commit(1, node("b", "a"), turn_id="t"))
        assert await seen(storage) == before

    async def test_a_running_effect_of_a_committed_turn_is_lost(self, harness: Harness) -> None:
        """A worker that still runs an effect of a committed turn cannot record it."""
        storage = await harness.open()
        session = await created(storage)
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL))
        await session.commit(commit(0, node("a"), turn_id="t"))
        for call in (storage.effects.finish(claim, 1), storage.effects.renew(claim, ttl_ms=TTL)):
            with pytest.raises(EffectLeaseLost):
                await call
        assert not await storage.effects.release(claim)
        assert await seen(storage) == ((), None)

    async def test_a_deleted_session_takes_all_its_scopes(self, harness: Harness) -> None:
        """Turns, drains and the deletion's own scope go; a new session of the same id starts without them."""
        storage = await harness.open()
        await everywhere(storage)
        scopes: tuple[ExecutionScope, ...] = (TURN,)
        await _fill(storage, *scopes, RUN, OPERATION)
        claim = claimed(await storage.effects.claim(effect("running"), ANN, ttl_ms=TTL))
        await storage.sessions.delete("s")
        with pytest.raises(EffectLeaseLost):
            await storage.effects.finish(claim, 1)
        await created(storage)
        for scope in scopes:
            assert await seen(storage, scope) == ((), None)
        for scope in (RUN, OPERATION):
            assert len(await storage.effects.list(scope)) == 2

    async def test_a_pruned_process_takes_its_scope(self, harness: Harness) -> None:
        """Ending a process keeps its effects, pruning removes them."""
        storage = await harness.open()
        await everywhere(storage)
        await _fill(storage, TURN, RUN)
        await storage.processes.complete("p", Success(value=1))
        assert len(await storage.effects.list(RUN)) == 2
        await harness.clock.advance(1)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        await registered(storage)
        assert await seen(storage, RUN) == ((), None)
        assert len(await storage.effects.list(TURN)) == 2

    async def test_a_scope_can_be_retired(self, harness: Harness) -> None:
        """Retiring removes one scope's effects and groups, returns the number of effects, and can be repeated."""
        storage = await harness.open()
        await everywhere(storage)
        await _fill(storage, TURN, RUN, OPERATION)
        for scope in (TURN, RUN, OPERATION):
            assert [await storage.effects.retire(scope) for _ in range(2)] == [2, 0]
            assert await seen(storage, scope) == ((), None)
            claimed(await storage.effects.claim(effect("0", scope=scope), BOB, ttl_ms=TTL))

    async def test_a_deletion_beside_new_effects(self, harness: Harness) -> None:
        """An effect or group concurrent with its session's deletion comes before it or is refused by name."""
        storage, other = await harness.open(), await harness.open()
        for attempt in range(6):
            name = f"s{attempt}"
            await created(storage, name)
            scope = TurnScope(session_id=name, turn_id="t")
            answers = await asyncio.gather(
                *(storage.effects.claim(effect(f"k{each}", scope=scope), ANN, ttl_ms=TTL) for each in range(3)),
                other.sessions.delete(name),
                storage.effects.open_group(scope, "g", size=1),
                return_exceptions=True,
            )
            assert {type(each) for each in answers if isinstance(each, BaseException)} <= {SessionDeleted}
            await created(storage, name)
            assert await seen(storage, scope) == ((), None)

    async def test_a_commit_beside_running_effects(self, harness: Harness) -> None:
        """Effects that finish while their turn is committed come before it or lose their claim."""
        storage, other = await harness.open(), await harness.open()
        for attempt in range(6):
            name = f"s{attempt}"
            session = await created(storage, name)
            scope = TurnScope(session_id=name, turn_id="t")
            await storage.effects.open_group(scope, "g", size=8)
            envelopes = [effect(f"k{number}", scope=scope, group="g") for number in range(8)]
            claims = [claimed(await storage.effects.claim(each, ANN, ttl_ms=TTL)) for each in envelopes[:4]]
            answers = await asyncio.gather(
                *(other.effects.finish(claim, 1) for claim in claims),
                session.commit(commit(0, node("a"), session_id=name, turn_id="t")),
                *(storage.effects.claim(each, ANN, ttl_ms=TTL) for each in envelopes[4:]),
                return_exceptions=True,
            )
            errors = {type(answer) for answer in answers if isinstance(answer, BaseException)}
            assert errors <= {EffectLeaseLost, Conflict}
            assert isinstance(answers[4], CommitResult)
            left = await storage.effects.list(scope)
            assert all(record.status is EffectStatus.IN_PROGRESS for record in left)
            assert await storage.effects.retire(scope) == len(left)

    async def test_the_report_counts_effects(self, harness: Harness) -> None:
        """The storage's size report counts effects and groups."""
        storage = await harness.open()
        await everywhere(storage)
        await _fill(storage, TURN)
        assert "effect" in (await storage.report()).nouns


async def _fill(storage: Storage, *scopes: ExecutionScope) -> None:
    """Give each scope a finished effect in group ``g``, and one in progress."""
    for scope in scopes:
        await storage.effects.open_group(scope, "g", size=3)
        claim = claimed(await storage.effects.claim(effect("0", scope=scope, group="g"), ANN, ttl_ms=60_000))
        await storage.effects.finish(claim, 1)
        claimed(await storage.effects.claim(effect("1", scope=scope), ANN, ttl_ms=60_000))
