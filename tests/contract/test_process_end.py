"""The contract of the end of a process: one outcome, once, and what is left after pruning."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from lash.errors import Conflict, EventConflict, InvalidInput, LashError, ProcessPruned, ProcessTerminal
from lash.model.process.event import Constant, EventType, Pointer, TerminalState, WholePayload
from lash.model.process.process import (
    Abandonment,
    Cancellation,
    ChangeKind,
    Failure,
    FailureClass,
    Outcome,
    ProcessStatus,
    Success,
)
from lash.model.value import JSON
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import all_records, feed, log, opened, refuse
from tests.factories.process import (
    DONE,
    NEWS,
    NOTE,
    consume,
    ending,
    event,
    external,
    granted,
    news,
    process,
    process_lease,
    registered,
    scope,
    stored,
    wait,
)
from tests.factories.session import created, owner

FAILED: Final = Failure(failure_class=FailureClass.TIMEOUT, code="slow", message="too slow", raw={"at": [1, None]})
CANCELLED: Final = Cancellation(message="enough", raw=[1])
GIVEN_UP: Final = Abandonment(message="the host is gone", evidence={"host": "h"})
ENDS: Final = (
    (DONE, "completed"),
    (Success(), "completed"),
    (FAILED, "failed"),
    (CANCELLED, "cancelled"),
)
OWN_END: Final[tuple[tuple[EventType, JSON, Outcome], ...]] = (
    (ending("end", TerminalState.COMPLETED), {"x": 1}, Success(value={"x": 1})),
    (ending("end", TerminalState.COMPLETED, Pointer(path="/x")), {"x": None}, Success(value=None)),
    (
        ending("end", TerminalState.FAILED, Pointer(path="/why")),
        {"why": {"b": 1, "a": [2]}},
        Failure(code="process_failed", message='{"a":[2],"b":1}', raw={"b": 1, "a": [2]}),
    ),
    (
        ending("end", TerminalState.CANCELLED, Pointer(path="/why")),
        {"why": "tired"},
        Cancellation(message="tired", raw="tired"),
    ),
    (ending("end", TerminalState.ABANDONED, Constant(value="lost")), 7, Abandonment(message="lost")),
    (
        ending("end", TerminalState.FAILED, WholePayload()),
        {"type": "failure", "failure_class": "timeout", "code": "c", "message": "m"},
        Failure(failure_class=FailureClass.TIMEOUT, code="c", message="m"),
    ),
)
"""Types that end a process, a payload, and the outcome that waiters get."""
AN_HOUR: Final = 3_600_000


class TestProcessEnd:
    """Laws of ending a process and of what is kept."""

    @pytest.mark.parametrize(("outcome", "state"), ENDS)
    async def test_the_outcome_is_kept_exactly(self, harness: Harness, outcome: Outcome, state: str) -> None:
        """The kind of outcome determines event and status, and the outcome comes back unchanged."""
        storage = await opened(harness)
        await registered(storage)
        await harness.clock.advance(7)
        record = await storage.processes.complete("p", outcome)
        assert (record.status.value, record.is_terminal, record.projection.outcome) == (state, True, outcome)
        assert (record.last_sequence, record.updated_at_ms) == (1, harness.clock.now_ms())
        assert await stored(await harness.open()) == record
        (last,) = await log(storage)
        assert last.event_type == f"process.{state}"

    @pytest.mark.parametrize(("outcome", "state"), ENDS)
    async def test_ending_alike_twice_is_one_end(self, harness: Harness, outcome: Outcome, state: str) -> None:
        """Ending again with the same outcome succeeds and writes nothing, not even a time."""
        storage = await opened(harness)
        await registered(storage)
        first = await storage.processes.complete("p", outcome)
        await harness.clock.advance(7)
        assert await storage.processes.complete("p", outcome) == first
        changes, _ = await feed(storage)
        assert [change.status and change.status.value for change in changes] == ["running", state]

    @pytest.mark.parametrize(
        ("second", "error"),
        [(Success(value="other"), EventConflict), (FAILED, ProcessTerminal), (CANCELLED, ProcessTerminal)],
    )
    async def test_there_is_no_second_end(self, harness: Harness, second: Outcome, error: type[LashError]) -> None:
        """Another outcome of the same kind is a conflict; one of another kind raises that the process ended."""
        storage = await opened(harness)
        await registered(storage, outcome=DONE)
        await refuse(storage, storage.processes.complete("p", second), error, naming="p")

    async def test_an_event_of_ones_own_cannot_end_twice(self, harness: Harness) -> None:
        """A declared terminal type cannot end a process again, whatever its key."""
        storage = await opened(harness)
        await storage.processes.register(process("p", ending("end", TerminalState.COMPLETED)))
        await storage.events.append("p", event("end", 1, key="a"))
        await refuse(storage, storage.events.append("p", event("end", 1, key="b")), ProcessTerminal, naming="p")
        await refuse(storage, storage.events.append("p", event("end", 2, key="a")), EventConflict, naming="p")
        await refuse(storage, storage.processes.complete("p", DONE), ProcessTerminal, naming="p")
        assert (await storage.events.append("p", event("end", 1, key="a"))).replayed

    @pytest.mark.parametrize(("declared", "payload", "outcome"), OWN_END)
    async def test_an_own_end_is_made_into_an_outcome(
        self, harness: Harness, declared: EventType, payload: JSON, outcome: Outcome
    ) -> None:
        """The value that the selector finds is the outcome, or becomes one of the declared state."""
        storage = await opened(harness)
        await storage.processes.register(process("p", declared))
        await storage.events.append("p", event("end", payload, key="k"))
        record = await stored(storage)
        state = declared.semantics.terminal
        assert state is not None
        assert (record.projection.outcome, record.status.value) == (outcome, state.state.value)

    @pytest.mark.parametrize(
        ("event_type", "payload"),
        [
            ("process.completed", {"outcome": {"type": "failure", "code": "c", "message": "m"}}),
            ("process.failed", {"outcome": {"type": "success", "value": 1}}),
            ("process.completed", {}),
            ("end", {"type": "success"}),
        ],
    )
    async def test_an_end_that_contradicts_itself_is_refused(
        self, harness: Harness, event_type: str, payload: JSON
    ) -> None:
        """An outcome of another state than the event's, or none, ends nothing."""
        storage = await opened(harness)
        await storage.processes.register(process("p", ending("end", TerminalState.CANCELLED, WholePayload())))
        draft = event(event_type, payload, key="k")
        await refuse(storage, storage.events.append("p", draft), InvalidInput, naming="p")

    @pytest.mark.parametrize(
        "outcome",
        [None, "done", {"type": "success"}, Success(value={1}), Success(value=2**64), GIVEN_UP],  # type: ignore[arg-type]
    )
    async def test_what_is_no_outcome_is_refused(self, harness: Harness, outcome: Any) -> None:  # noqa: ANN401
        """An invalid outcome is refused, and so is abandoning a process by this call."""
        storage = await opened(harness)
        await registered(storage)
        await refuse(storage, storage.processes.complete("p", outcome), InvalidInput)

    async def test_of_many_ends_one_wins(self, harness: Harness) -> None:
        """Of concurrent different outcomes exactly one is stored, and the log has one end."""
        storages = [await harness.open() for _ in range(3)]
        for attempt in range(4):
            name = f"p{attempt}"
            await storages[0].processes.register(process(name))
            outcomes: list[Outcome] = [
                Success(value=1),
                Success(value=2),
                FAILED,
                CANCELLED,
                Success(value=3),
            ]
            answers = await asyncio.gather(
                *(storages[index % 3].processes.complete(name, each) for index, each in enumerate(outcomes)),
                return_exceptions=True,
            )
            won = [each for each, answer in zip(outcomes, answers, strict=True) if not isinstance(answer, Exception)]
            assert won == [(await stored(storages[1], name)).projection.outcome]
            assert all(isinstance(answer, Conflict) for answer in answers if isinstance(answer, Exception))
            assert len(await log(storages[2], name)) == 1

    async def test_only_an_abandonment_abandons(self, harness: Harness) -> None:
        """Abandoning needs a request and no live lease; time alone ends nothing."""
        storage = await opened(harness)
        await registered(storage)
        lease = process_lease(await storage.process_leases.claim("p", owner("w"), ttl_ms=100))
        await refuse(storage, storage.processes.abandon("p", GIVEN_UP), Conflict, naming="p")
        await storage.processes.request_abandon("p", reason="lost")
        await refuse(storage, storage.processes.abandon("p", GIVEN_UP), Conflict, naming="p")
        await harness.clock.advance(100)
        assert (await stored(storage)).status is ProcessStatus.RUNNING
        await refuse(storage, storage.processes.abandon("p", DONE), InvalidInput)  # type: ignore[arg-type]
        record = await storage.processes.abandon("p", GIVEN_UP)
        assert (record.status, record.projection.outcome) == (ProcessStatus.ABANDONED, GIVEN_UP)
        assert await storage.processes.abandon("p", GIVEN_UP) == record
        assert await storage.process_leases.holder("p") in {None, lease}

    async def test_an_external_process_ends_only_by_report(self, harness: Harness) -> None:
        """An external process is ended only by a report from outside."""
        storage = await opened(harness)
        await storage.processes.register(external())
        await harness.clock.advance(AN_HOUR)
        assert (await stored(storage)).status is ProcessStatus.RUNNING
        assert (await storage.processes.complete("p", DONE)).projection.outcome == DONE

    async def test_pruning_leaves_a_tombstone(self, harness: Harness) -> None:
        """A process that ended long ago is removed with all it owns; reading it raises that it was pruned."""
        storage = await opened(harness)
        await registered(storage, "old", outcome=DONE)
        await storage.grants.grant(granted("s", "old"))
        await registered(storage, "runs")
        await harness.clock.advance(AN_HOUR)
        await registered(storage, "fresh", outcome=DONE)
        report = await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        assert (report.pruned_process_ids, report.more) == (("old",), False)
        assert sorted(record.process_id for record in await all_records(storage)) == ["fresh", "runs"]
        assert await storage.processes.get("old") is None
        assert await storage.grants.list(scope("s")) == ()
        for call in (storage.events.after("old"), storage.processes.complete("old", DONE)):
            await refuse(storage, call, ProcessPruned, naming="old")
        claim = storage.process_leases.claim("old", owner("w"), ttl_ms=1)
        await refuse(storage, claim, ProcessPruned, naming="old")

    async def test_pruning_never_passes_the_slowest_reader(self, harness: Harness) -> None:
        """A process is kept until the reader at the cursor has seen its end; the removal is a change too."""
        storage = await opened(harness)
        await registered(storage, "a", "b")
        await storage.processes.complete("a", DONE)
        _, behind_a = await feed(storage)
        await storage.processes.complete("b", DONE)
        later = harness.clock.now_ms() + 1
        assert await _pruned(storage, later, behind_a) == ["a"]
        changes, behind_b = await feed(storage, behind_a)
        assert [(change.process_id, change.kind) for change in changes] == [
            ("b", ChangeKind.EVENT),
            ("a", ChangeKind.PRUNED),
        ]
        assert await _pruned(storage, later, behind_b) == ["b"]
        changes, _ = await feed(storage, behind_b)
        assert [(change.process_id, change.kind) for change in changes] == [("b", ChangeKind.PRUNED)]

    async def test_a_late_event_keeps_a_process_for_its_reader(self, harness: Harness) -> None:
        """An event after the end must also be seen before the process is pruned."""
        storage = await opened(harness)
        await registered(storage, outcome=DONE)
        _, cursor = await feed(storage)
        await storage.events.append("p", event())
        later = harness.clock.now_ms() + 1
        assert await _pruned(storage, later, cursor) == []
        _, cursor = await feed(storage, cursor)
        assert await _pruned(storage, later, cursor) == ["p"]

    async def test_pruning_says_whether_more_is_left(self, harness: Harness) -> None:
        """A limit bounds one pruning, oldest ends first; the next call continues."""
        storage = await opened(harness)
        for name in ("c", "a", "b"):
            await registered(storage, name, outcome=DONE)
            await harness.clock.advance(1)
        now = harness.clock.now_ms()
        first = await storage.processes.prune(ended_before_ms=now, through_cursor=None, limit=2)
        assert (first.pruned_process_ids, first.more) == (("c", "a"), True)
        second = await storage.processes.prune(ended_before_ms=now, through_cursor=None, limit=2)
        assert (second.pruned_process_ids, second.more) == (("b",), False)

    async def test_an_open_wake_keeps_its_process(self, harness: Harness) -> None:
        """A process is not removed while a wake of it is queued."""
        storage = await opened(harness)
        await created(storage)
        await storage.processes.register(process("p", NEWS, wake_session_id="s"))
        await storage.events.append("p", news())
        await storage.processes.complete("p", DONE)
        assert await _pruned(storage, harness.clock.now_ms() + 1, None) == []
        await consume(storage)
        assert await _pruned(storage, harness.clock.now_ms() + 1, None) == ["p"]

    async def test_a_pruned_id_starts_anew(self, harness: Harness) -> None:
        """A pruned id can be registered again, even differently; events count from 1, fencing numbers continue."""
        storage = await opened(harness)
        await registered(storage)
        old = process_lease(await storage.process_leases.claim("p", owner("w"), ttl_ms=100))
        await storage.process_leases.complete(old.fence, DONE)
        assert await _pruned(storage, harness.clock.now_ms() + 1, None) == ["p"]
        answer = await storage.processes.register(process("p", NOTE, NEWS))
        assert (answer.created, answer.record.last_sequence) == (True, 0)
        assert (await storage.events.append("p", event())).event.sequence == 1
        new = process_lease(await storage.process_leases.claim("p", owner("w"), ttl_ms=100))
        assert new.fencing > old.fencing
        assert (await storage.processes.set_wait("p", wait())).projection.wait == wait()

    @pytest.mark.parametrize(
        "bad", [{"ended_before_ms": "1"}, {"limit": 0}, {"limit": 1_001}, {"through_cursor": "nonsense"}]
    )
    async def test_a_bad_pruning_is_refused(self, harness: Harness, bad: dict[str, Any]) -> None:
        """Invalid limits, times and cursors prune nothing."""
        storage = await opened(harness)
        await registered(storage, outcome=DONE)
        arguments = {"ended_before_ms": harness.clock.now_ms() + 1, "through_cursor": None} | bad
        await refuse(storage, storage.processes.prune(**arguments), InvalidInput)


async def _pruned(storage: Storage, ended_before_ms: int, cursor: str | None) -> list[str]:
    report = await storage.processes.prune(ended_before_ms=ended_before_ms, through_cursor=cursor)
    return list(report.pruned_process_ids)
