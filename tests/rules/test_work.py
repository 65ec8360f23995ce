"""Rules of the work list: which events make which process ready, and the arguments of a poll."""

from __future__ import annotations

from typing import Any

import pytest

from lash.errors import CorruptData, InvalidInput, NewerSchema
from lash.model.causal import CausalRef, NodeCause, ProcessCause, ProcessEventCause
from lash.model.lease import Lease, LeaseOwner, LocalProcess, process_resource, session_resource
from lash.model.process.event import EventDraft
from lash.model.process.process import (
    EngineInput,
    ExternalInput,
    ProcessStatus,
    Projection,
    Provenance,
    Recovery,
    Registration,
)
from lash.model.work import SessionLanes, WorkList
from lash.plan.process.event import InsertEvent, plan_append
from lash.plan.process.process import encode_registration
from lash.plan.work import (
    HeldRow,
    WorkAnswer,
    WorkChange,
    WorkPoll,
    check_park,
    check_pause,
    check_poll,
    check_schema,
    decode_work,
    is_runnable,
    parent_of,
    plan_work,
)

RUNNING = Projection()
ENDED = Projection(status=ProcessStatus.COMPLETED)
OWNER = LeaseOwner(owner_id="o", incarnation_id="1")


def registration(cause: CausalRef | None = None, **fields: Any) -> Registration:  # noqa: ANN401
    fields.setdefault("input", ExternalInput())
    return Registration(process_id="p", provenance=Provenance(caused_by=cause), **fields)


@pytest.mark.parametrize("event_type", ["signal.go", "process.cancel_requested", "process.abandon_requested"])
def test_what_others_ask_wakes_a_running_process(event_type: str) -> None:
    """Signals and requests wake the process, not its parent."""
    change = plan_work(registration(ProcessCause(process_id="q")), RUNNING, event_type, RUNNING)
    assert change == WorkChange(wakes=True)


@pytest.mark.parametrize("event_type", ["note", "signal", "signals.go", "process.started", "process.waiting"])
def test_other_events_wake_nobody(event_type: str) -> None:
    """Events that a run writes are not reasons to run."""
    assert plan_work(registration(), RUNNING, event_type, RUNNING) == WorkChange()


@pytest.mark.parametrize("cause", [ProcessCause(process_id="q"), ProcessEventCause(process_id="q", sequence=3)])
def test_an_end_wakes_the_parent(cause: CausalRef) -> None:
    """An end takes the process off the list and wakes its parent, which started it directly or by an event."""
    change = plan_work(registration(cause), RUNNING, "process.completed", ENDED)
    assert change == WorkChange(ends=True, wakes_parent=True)


@pytest.mark.parametrize("cause", [None, NodeCause(session_id="q", node_id="q"), ProcessCause(process_id="p")])
def test_an_end_without_a_parent_wakes_nobody(cause: CausalRef | None) -> None:
    """An end without a parent, or as its own parent, wakes no process."""
    assert plan_work(registration(cause), RUNNING, "process.completed", ENDED) == WorkChange(ends=True)


@pytest.mark.parametrize("event_type", ["signal.go", "process.cancel_requested", "note"])
def test_what_ended_is_not_woken(event_type: str) -> None:
    """Events after the end change nothing on the work list."""
    assert plan_work(registration(ProcessCause(process_id="q")), ENDED, event_type, ENDED) == WorkChange()


@pytest.mark.parametrize(
    ("event_type", "after", "expected"),
    [("note", RUNNING, set()), ("signal.go", RUNNING, {"wakes"}), ("process.completed", ENDED, {"ends"})],
)
def test_an_event_means_no_more_than_it_says(event_type: str, after: Projection, expected: set[str]) -> None:
    """An event that wakes a process does not end it, and other events neither end nor wake a process."""
    change = plan_work(registration(), RUNNING, event_type, after)
    assert {name for name in ("wakes", "ends", "wakes_parent") if getattr(change, name)} == expected


def test_an_append_says_what_it_means_for_the_work_list() -> None:
    """The decision about an append carries the decision about the work list."""
    draft = EventDraft(event_type="process.cancel_requested", payload={}, replay_key="k")
    decision = plan_append(
        registration(), RUNNING, draft, life=1, last_sequence=0, wake_session_id=None, known=None, now_ms=5
    )
    assert isinstance(decision, InsertEvent)
    assert decision.work == WorkChange(wakes=True)


def test_a_registration_tells_its_parent_and_whether_it_is_run() -> None:
    """Parent and recovery are columns; an external input is stored as external, declared or not."""
    encoded = encode_registration(registration(ProcessCause(process_id="q")))
    assert (encoded.parent_process_id, encoded.runnable) == ("q", False)
    run_here = registration(input=EngineInput(kind="k"), environment_ref="e")
    encoded = encode_registration(run_here)
    assert (encoded.parent_process_id, encoded.runnable) == (None, True)
    assert (parent_of(run_here), is_runnable(run_here)) == (None, True)
    assert not is_runnable(registration(recovery=Recovery.EXTERNAL))


@pytest.mark.parametrize("parent", ["", "\0", "x" * 256])
def test_a_parent_that_cannot_be_stored_is_refused(parent: str) -> None:
    """The parent's id is a column, and is checked like every id."""
    with pytest.raises(InvalidInput, match=r"caused_by\.process_id"):
        encode_registration(registration(ProcessCause(process_id=parent)))


def test_a_poll_is_checked() -> None:
    """Numbers, owner and ids come back as given, the ids as a tuple."""
    poll = check_poll(0, 1_000, OWNER, ["s"], {"p"})
    assert poll == WorkPoll(sessions=0, processes=1_000, owner=OWNER, running_sessions=("s",), running_processes=("p",))


@pytest.mark.parametrize(
    "given",
    [
        (-1, 1, OWNER, (), ()),
        (1, 1_001, OWNER, (), ()),
        (1, True, OWNER, (), ()),
        (1, 1, "o", (), ()),
        (1, 1, LeaseOwner(owner_id="", incarnation_id="1"), (), ()),
        (1, 1, OWNER, "s", ()),
        (1, 1, OWNER, (), 5),
        (1, 1, OWNER, (), [""]),
    ],
)
def test_a_look_that_cannot_be_is_refused(given: tuple[Any, ...]) -> None:
    """An invalid poll is refused before any query."""
    with pytest.raises(InvalidInput):
        check_poll(*given)


@pytest.mark.parametrize(("wake_seq", "until_ms"), [(0, None), (2**63 - 1, 0), (3, 2**63 - 1)])
def test_any_moment_can_be_parked_until(wake_seq: int, until_ms: int | None) -> None:
    """Any moment of the clock is accepted, and so is None."""
    check_park(wake_seq, until_ms)


@pytest.mark.parametrize(("wake_seq", "until_ms"), [(-1, None), (None, None), (0, -1), (0, 1.5), (0, 2**63)])
def test_parking_needs_numbers(wake_seq: Any, until_ms: Any) -> None:  # noqa: ANN401
    """Invalid numbers are refused."""
    with pytest.raises(InvalidInput):
        check_park(wake_seq, until_ms)


def test_a_pause_lasts_up_to_a_day() -> None:
    """Zero is no pause, a day the longest."""
    assert (check_pause(0), check_pause(86_400_000)) == (0, 86_400_000)
    for bad in (-1, 86_400_001, None):
        with pytest.raises(InvalidInput, match="pause_ms"):
            check_pause(bad)


def test_what_was_found_is_decoded() -> None:
    """Leases are decoded as leases of sessions and of processes, sessions first."""
    process = LocalProcess(host_id="h", boot_id="b", pid=3, process_start="7")
    text = '{"host_id":"h","boot_id":"b","pid":3,"process_start":"7"}'
    held = LeaseOwner(owner_id="o", incarnation_id="2", process=process)
    answer = WorkAnswer(
        9, ["u"], ["r"], ["s", "t", "s"], ["n"], ["p"], ["c"], ["x"], [HeldRow("t", 1, "o", "2", text, "k", 2, 3)],
        [HeldRow("q", 4, "o", "2", text, "l", 5, 6)], 11, 12, 13, True, None,
    )  # fmt: skip
    assert decode_work(answer) == WorkList(
        lanes=SessionLanes(urgent=("u",), resumed=("r",), waiting=("s", "t"), newest=("n",)),
        process_ids=("p",),
        commanded_session_ids=("c",),
        cancelled_process_ids=("x",),
        suspect_leases=(
            Lease(resource=session_resource("t"), owner=held, token="k", fencing=1, claimed_at_ms=2, expires_at_ms=3),
            Lease(resource=process_resource("q"), owner=held, token="l", fencing=4, claimed_at_ms=5, expires_at_ms=6),
        ),
        next_at_ms=11,
        now_ms=9,
        wakes_due=True,
    )


@pytest.mark.parametrize("found", [1, 12, 13])
def test_a_schema_that_this_version_knows(found: int) -> None:
    """The schema of this version and earlier ones are accepted."""
    check_schema(found, 13)


def test_a_schema_beyond_this_version_is_refused() -> None:
    """The error has both numbers."""
    with pytest.raises(NewerSchema) as refused:
        check_schema(14, 13)
    assert (refused.value.found, refused.value.supported) == (14, 13)


def test_a_holder_without_a_lease_is_corrupt() -> None:
    """A row found by its holder must have a lease."""
    answer = WorkAnswer(
        9,
        *([], [], [], []),
        [],
        [],
        [],
        [HeldRow("t", 1, None, None, "{}", None, 0, 0)],
        [],
        None,
        None,
        13,
        any_wakes=False,
        fleet=None,
    )
    with pytest.raises(CorruptData, match="'t'"):
        decode_work(answer)


@pytest.mark.parametrize(
    ("next_at_ms", "timer_at_ms", "due", "soonest"),
    [
        (None, None, False, None),
        (11, None, False, 11),
        (None, 12, False, 12),
        (11, 10, False, 10),
        (11, 9, True, 11),
        (2**63 - 1, None, False, None),
    ],
)
def test_timers_are_due_or_a_moment_to_look_again(
    next_at_ms: int | None, timer_at_ms: int | None, *, due: bool, soonest: int | None
) -> None:
    """A schedule or a wait whose time has come is due; a later one gives the next moment to poll."""
    answer = WorkAnswer(
        9, *([], [], [], []), [], [], [], [], [], next_at_ms, timer_at_ms, 13, any_wakes=False, fleet=None
    )
    work = decode_work(answer)
    assert (work.timers_due, work.next_at_ms) == (due, soonest)
