"""The contract of filters and orders of the list of sessions, and of what an entry has on request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lash.errors import InvalidInput
from lash.model.lease import LocalProcess
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.session import SessionCounts, SessionFilter, SessionOrder, SessionState
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import late
from tests.factories.session import commit, created, draft, frame, owner, started
from tests.factories.wait import TURN, key_of, parked, waiting

ACTIVE = SessionOrder.ACTIVE


class TestFilter:
    """Laws of each part of a filter."""

    async def test_a_filter_finds_its_sessions_in_both_orders(self, harness: Harness) -> None:
        """Owner, labels, prefix and agent, alone and together, find what has them, in each order and direction."""
        storage = await harness.open()
        await storage.sessions.create("a:1", owner="ada", labels={"env": "prod", "team": "x"})
        await storage.sessions.create("a:2", owner="ada", labels={"env": "test"})
        await storage.sessions.create("b:1", owner="bob", labels={"env": "prod"})
        await storage.sessions.create("b:2")
        await _by_agent(storage, "b:2", "helper")
        await harness.clock.advance(5_000)
        await _by_agent(storage, "a:1", "helper")
        cases: list[tuple[dict[str, Any], list[str], list[str]]] = [
            ({}, ["b:2", "b:1", "a:2", "a:1"], ["a:1", "b:2", "b:1", "a:2"]),
            ({"owner": "ada"}, ["a:2", "a:1"], ["a:1", "a:2"]),
            ({"labels": {"env": "prod"}}, ["b:1", "a:1"], ["a:1", "b:1"]),
            ({"labels": {"env": "prod", "team": "x"}}, ["a:1"], ["a:1"]),
            ({"owner": "bob", "labels": {"env": "prod"}}, ["b:1"], ["b:1"]),
            ({"owner": "bob", "labels": {"env": "test"}}, [], []),
            ({"prefix": "a:"}, ["a:2", "a:1"], ["a:1", "a:2"]),
            ({"prefix": "b:", "owner": "bob"}, ["b:1"], ["b:1"]),
            ({"agent": "helper"}, ["b:2", "a:1"], ["a:1", "b:2"]),
            ({"agent": "helper", "prefix": "b"}, ["b:2"], ["b:2"]),
            ({"agent": "other"}, [], []),
            ({"owner": "eve"}, [], []),
        ]
        for wanted, by_creation, by_activity in cases:
            fits = SessionFilter(**wanted)
            for order, expected in ((SessionOrder.CREATED, by_creation), (ACTIVE, by_activity)):
                assert await _listed(storage, fits, order=order) == expected, (wanted, order)
                assert await _listed(storage, fits, order=order, oldest_first=True) == expected[::-1], (wanted, order)

    async def test_forks_are_found_by_their_source(self, harness: Harness) -> None:
        """A session lists its own forks, not theirs; the rest of the filter narrows them."""
        storage = await harness.open()
        await started(storage, "s")
        for source, fork, name in (("s", "f1", "bob"), ("s", "f2", "ada"), ("f1", "g", "ada")):
            await storage.sessions.fork(source, fork, owner=name)
        assert await _listed(storage, SessionFilter(source_session_id="s")) == ["f2", "f1"]
        assert await _listed(storage, SessionFilter(source_session_id="f1"), order=ACTIVE) == ["g"]
        assert await _listed(storage, SessionFilter(source_session_id="s", owner="ada")) == ["f2"]
        assert await _listed(storage, SessionFilter(source_session_id="s", prefix="f1")) == ["f1"]
        assert await _listed(storage, SessionFilter(source_session_id="g")) == []

    async def test_a_state_is_derived_from_lease_queue_and_waits(self, harness: Harness) -> None:
        """A live lease is running, then comes queued input, then an open wait; an expired lease does not count."""
        storage = await harness.open()
        for name in ("idle", "queued", "running", "named", "s"):
            await storage.sessions.create(name)
        await storage.queue.enqueue(late("hello", session_id="queued"))
        await storage.queue.enqueue(late("hello", session_id="running"))
        await storage.leases.claim("running", owner("w"), ttl_ms=1_000)
        process = LocalProcess(host_id="h", boot_id="b", pid=1, process_start="1")
        await storage.leases.claim("named", owner("w", process=process), ttl_ms=1_000)
        key = await key_of(storage, scope=TURN)
        task = waiting(storage, key)
        await parked(storage, key)
        expected = {"idle": "idle", "queued": "queued", "running": "running", "named": "running", "s": "waiting"}
        assert await _states(storage) == expected
        for state in SessionState:
            for order in SessionOrder:
                found = await _listed(storage, SessionFilter(state=state), order=order, oldest_first=True)
                assert found == [name for name, has in expected.items() if has == state], (state, order)
        await harness.clock.advance(2_000)
        assert await _states(storage) == {**expected, "running": "queued", "named": "idle"}
        task.cancel()
        await asyncio.wait([task])

    async def test_times_bound_the_list(self, harness: Harness) -> None:
        """Times of creation and of activity are exclusive bounds, in both orders and directions."""
        storage = await harness.open()
        start = harness.clock.now_ms()
        for number in range(5):
            await storage.sessions.create(f"s{number}")
            await harness.clock.advance(1_500)
        await storage.session("s1").commit(commit(0, session_id="s1"))
        for order in SessionOrder:
            for oldest_first in (False, True):
                how = {"order": order, "oldest_first": oldest_first}
                made = SessionFilter(created_after_ms=start, created_before_ms=start + 4_500)
                assert sorted(await _listed(storage, made, **how)) == ["s1", "s2"]
                active = SessionFilter(active_after_ms=start + 1_500, active_before_ms=start + 6_000)
                assert sorted(await _listed(storage, active, **how)) == ["s2", "s3"]
                assert await _listed(storage, SessionFilter(active_after_ms=start + 7_499), **how) == ["s1"]

    async def test_a_prefix_is_text_and_no_pattern(self, harness: Harness) -> None:
        """Signs of patterns, of other languages and of the end of Unicode match only themselves; case matters."""
        storage = await harness.open()
        names = ["a%b", "a_b", "axb", "A", "ä1", "z", "\U0010ffff1", "a"]
        for name in names:
            await storage.sessions.create(name)
        for prefix in ("a%", "a_", "A", "ä", "\U0010ffff", "a", "", "b"):
            expected = [name for name in names if name.startswith(prefix)]
            assert await _listed(storage, SessionFilter(prefix=prefix), oldest_first=True) == expected, prefix

    @pytest.mark.parametrize("order", SessionOrder)
    async def test_pages_of_a_filter_do_not_overlap(self, harness: Harness, order: SessionOrder) -> None:
        """Pages of any filter show every match once, in the order of the whole list."""
        storage = await harness.open()
        for number in range(6):
            await storage.sessions.create(f"s{number}", owner="ada", labels={"n": str(number % 2)})
            await storage.queue.enqueue(late("hello", session_id=f"s{number}"))
            if number % 3 == 0:
                await harness.clock.advance(700)
        for number in (2, 4, 0):
            await _by_agent(storage, f"s{number}", "helper")
            await harness.clock.advance(1)
        filters = (
            SessionFilter(),
            SessionFilter(owner="ada"),
            SessionFilter(labels={"n": "0"}),
            SessionFilter(prefix="s"),
            SessionFilter(agent="helper"),
            SessionFilter(state=SessionState.QUEUED),
        )
        for wanted in filters:
            for oldest_first in (False, True):
                whole = await _listed(storage, wanted, order=order, oldest_first=oldest_first)
                assert len(whole) in (3, 6)
                assert await _pages(storage, wanted, 2, order=order, oldest_first=oldest_first) == whole

    async def test_a_cursor_belongs_to_its_order(self, harness: Harness) -> None:
        """A cursor of another order or direction is refused."""
        storage = await harness.open()
        for number in range(3):
            await storage.sessions.create(f"s{number}")
        for order in SessionOrder:
            for oldest_first in (False, True):
                page = await storage.sessions.list(order=order, oldest_first=oldest_first, limit=1)
                for other in SessionOrder:
                    if other is not order:
                        with pytest.raises(InvalidInput):
                            await storage.sessions.list(order=other, oldest_first=oldest_first, cursor=page.next_cursor)
                with pytest.raises(InvalidInput):
                    await storage.sessions.list(order=order, oldest_first=not oldest_first, cursor=page.next_cursor)

    @pytest.mark.parametrize(
        "wanted",
        [
            {"owner": ""},
            {"agent": " "},
            {"prefix": "\0"},
            {"source_session_id": ""},
            {"labels": {"": "x"}},
            {"labels": {"k": 1}},
            {"state": "sleeping"},
            {"created_after_ms": 2**63},
            {"active_before_ms": "now"},
        ],
    )
    async def test_a_wrong_filter_is_refused(self, harness: Harness, wanted: dict[str, Any]) -> None:
        """A filter that no session can match by its form raises InvalidInput."""
        storage = await harness.open()
        with pytest.raises(InvalidInput):
            await storage.sessions.list(SessionFilter(**wanted))


class TestParts:
    """Laws of what an entry has on request."""

    async def test_parts_are_those_of_single_reads(self, harness: Harness) -> None:
        """Head, checkpoint and counts equal what the session returns on its own; without a request there are none."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        state = draft(2, {"one": b"1" * 3_000, "two": b"2"})
        await session.commit(commit(1, checkpoint=state, frames=(frame("f", state=b"deep"),), current_frame_id="f"))
        other = await started(storage, "other")
        await created(storage, "empty")
        await storage.queue.enqueue(late("hello"))
        await storage.queue.enqueue(late("hello", session_id="empty"))
        await storage.queue.enqueue(late("again", session_id="empty"))
        for order in SessionOrder:
            page = await storage.sessions.list(order=order, with_head=True, with_counts=True, with_checkpoint=True)
            found = {each.meta.session_id: each for each in page.sessions}
            for handle in (session, other):
                entry = found[handle.session_id]
                assert (entry.head, entry.checkpoint) == (await handle.head(), await handle.checkpoint())
            assert found["s"].checkpoint is not None
            assert found["s"].checkpoint.components == {"one": b"1" * 3_000, "two": b"2"}
            assert (found["empty"].head, found["empty"].checkpoint) == (None, None)
            counts = {name: each.counts for name, each in found.items()}
            none = SessionCounts()
            assert counts == {"s": SessionCounts(queued=1), "other": none, "empty": SessionCounts(queued=2)}
            assert {each.state for each in page.sessions} == {None}
        plain = (await storage.sessions.list(SessionFilter(state=SessionState.QUEUED))).sessions
        assert [(each.head, each.checkpoint, each.counts, each.state) for each in plain] == [(None,) * 4] * 2

    async def test_the_agent_is_that_of_the_last_turn(self, harness: Harness) -> None:
        """A commit whose state names an agent sets it; another commit keeps it, and a fork starts with it."""
        storage = await harness.open()
        session = await created(storage)
        await _by_agent(storage, "s", "first")
        await session.commit(commit(1))
        assert await _agents(storage) == {"s": "first"}
        await _by_agent(storage, "s", "second", revision=2)
        await storage.sessions.fork("s", "f")
        assert await _agents(storage) == {"s": "second", "f": "second"}


async def _by_agent(storage: Storage, session_id: str, agent: str, *, revision: int = 0) -> None:
    state = TurnState(protocol_turn_options={"agent": agent})
    await storage.session(session_id).commit(
        commit(revision, session_id=session_id, checkpoint=CheckpointDraft(turn_state=state))
    )


async def _agents(storage: Storage) -> dict[str, str | None]:
    return {each.meta.session_id: each.agent for each in (await storage.sessions.list()).sessions}


async def _states(storage: Storage) -> dict[str, str | None]:
    page = await storage.sessions.list(with_state=True, oldest_first=True)
    return {each.meta.session_id: each.state for each in page.sessions}


async def _listed(storage: Storage, wanted: SessionFilter, **how: Any) -> list[str]:  # noqa: ANN401 - of the list
    return [each.meta.session_id for each in (await storage.sessions.list(wanted, **how)).sessions]


async def _pages(storage: Storage, wanted: SessionFilter, limit: int, **how: Any) -> list[str]:  # noqa: ANN401
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await storage.sessions.list(wanted, limit=limit, cursor=cursor, **how)
        seen += [each.meta.session_id for each in page.sessions]
        cursor = page.next_cursor
        if cursor is None:
            return seen
