"""Rules of the registry of workers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lash.errors import CorruptData, InvalidInput
from lash.model.lease import LeaseOwner, LocalProcess
from lash.model.worker import Beat, Fleet, Holding, Served, WorkerStatus
from lash.plan.work import check_poll
from lash.plan.worker import (
    FleetRow,
    HoldingRow,
    NeighbourRow,
    WorkerRow,
    check_beat,
    decode_fleet,
    decode_holding,
    decode_worker,
    plan_pace,
)

PROCESS = '{"host_id":"h","boot_id":"b","pid":3,"process_start":"7"}'
OWNER = LeaseOwner(
    owner_id="o",
    incarnation_id="w",
    process=LocalProcess(host_id="h", boot_id="b", pid=3, process_start="7"),
)
BEAT = Beat(
    owner=OWNER, host="m", pid=3, version="1", beat_ms=50, session_slots=1, process_slots=2, free_sessions=1,
    free_processes=0, served=Served(agents=("x", "y"), labels={"k": "v"}), channel="c",
)  # fmt: skip
ROW = WorkerRow(
    "w", "o", "m", 3, PROCESS, "b", "1", 0, 0, 50, 1, 2, 1, 0, '["x","y"]', None, '{"k":"v"}', "c", "active"
)  # fmt: skip


def test_a_beat_and_its_row() -> None:
    """A beat becomes a row, and a row with its times becomes the worker."""
    assert check_beat(BEAT) == ROW
    worker = decode_worker(msgspec.structs.replace(ROW, started_at_ms=5, seen_at_ms=7, status="draining"), 9)
    assert worker.beat == BEAT
    assert (worker.worker_id, worker.started_at_ms, worker.seen_at_ms) == ("w", 5, 7)
    assert (worker.status, worker.is_late) == (WorkerStatus.DRAINING, False)


def test_a_worker_without_a_process() -> None:
    """An owner that names no operating system process stores none."""
    nowhere = msgspec.structs.replace(BEAT, owner=LeaseOwner(owner_id="o", incarnation_id="w"), channel=None)
    row = check_beat(nowhere)
    assert (row.process, row.boot_id) == (None, None)
    assert decode_worker(row, 0).beat == nowhere


def test_late_is_two_missed_beats() -> None:
    """A worker is late once two beats of 50 ms have passed since it was seen at 7."""
    seen = msgspec.structs.replace(ROW, seen_at_ms=7)
    assert [decode_worker(seen, now_ms).is_late for now_ms in (107, 108)] == [False, True]


@pytest.mark.parametrize(
    ("change", "naming"),
    [
        ({"beat_ms": 0}, "beat_ms"),
        ({"beat_ms": 86_400_001}, "a day"),
        ({"owner": "w"}, "owner must be a LeaseOwner"),
        ({"host": 1}, "host must be text"),
        ({"version": None}, "version must be text"),
        ({"pid": -1}, "pid"),
        ({"session_slots": -1}, "session_slots"),
        ({"process_slots": -1}, "process_slots"),
        ({"free_sessions": -1}, "free_sessions"),
        ({"free_processes": -1}, "free_processes"),
        ({"channel": " "}, "channel is blank"),
        ({"served": None}, "served must be a Served"),
        ({"served": Served(agents=["x"])}, "agents must be a tuple"),  # type: ignore[arg-type]
        ({"served": Served(processes=("",))}, "processes item is blank"),
        ({"served": Served(processes=("x",) * 101)}, "processes has 101 names; at most 100"),
        ({"served": Served(labels=("x",))}, "expected labels as a dict"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_beat_is_refused(change: dict[str, Any], naming: str) -> None:
    """Each field of a beat is checked by name."""
    with pytest.raises(InvalidInput, match=naming):
        check_beat(msgspec.structs.replace(BEAT, **change))


def test_limits_of_a_beat_are_allowed() -> None:
    """A day between beats and a hundred names are accepted."""
    names = tuple(f"n{number}" for number in range(100))
    row = check_beat(msgspec.structs.replace(BEAT, beat_ms=86_400_000, served=Served(agents=names)))
    assert row.beat_ms == 86_400_000
    assert decode_worker(row, 0).beat.served.agents == names


def test_a_poll_takes_only_its_own_beat() -> None:
    """The beat of a poll is checked, and must be of the owner that polls."""
    assert check_poll(1, 1, OWNER, (), (), BEAT).beat == ROW
    assert check_poll(1, 1, OWNER, (), ()).beat is None
    assert check_poll(1, 1, OWNER, (), ()).agents is None
    assert check_poll(1, 1, OWNER, (), (), agents=["x"]).agents == ("x",)
    assert check_poll(1, 1, OWNER, (), (), labels={"k": "v"}).labels == '{"k":"v"}'
    assert check_poll(1, 1, OWNER, (), (), labels=None).labels is None
    assert check_poll(1, 1, OWNER, (), (), labels={}).labels is None
    with pytest.raises(InvalidInput, match="beat must be a Beat"):
        check_poll(1, 1, OWNER, (), (), "beat")
    for other in (LeaseOwner(owner_id="o", incarnation_id="v"), LeaseOwner(owner_id="p", incarnation_id="w")):
        with pytest.raises(InvalidInput, match="owner of the poll"):
            check_poll(1, 1, other, (), (), BEAT)


def test_who_takes_turns() -> None:
    """An active worker that is not late and has slots takes turns of its agents, or of all."""
    worker = decode_worker(msgspec.structs.replace(ROW, seen_at_ms=100), 100)
    beat = worker.beat

    def takes(agent: str | None, **changes: object) -> bool:
        return msgspec.structs.replace(worker, **changes).takes_turns(agent)

    assert (takes("x"), takes("z"), takes(None)) == (True, False, False)
    all_agents = msgspec.structs.replace(beat, served=Served())
    assert (takes("z", beat=all_agents), takes(None, beat=all_agents)) == (True, True)
    assert not takes("x", beat=msgspec.structs.replace(beat, session_slots=0))
    assert not takes("x", status=WorkerStatus.DRAINING)
    assert not takes("x", is_late=True)
    for labels, is_taken in (({"k": "v", "l": "w"}, True), ({"k": "w"}, False), ({}, False), (None, True)):
        assert worker.takes_turns("x", labels) is is_taken
    assert msgspec.structs.replace(worker, beat=all_agents).takes_turns("x", {})


def test_the_fleet_of_a_row() -> None:
    """The worker itself counts as live; a draining one has no rank."""
    row = FleetRow(2, 1, "active", [NeighbourRow("o", "w", PROCESS)], ["v", "w"])
    fleet = Fleet(live=3, rank=1, status=WorkerStatus.ACTIVE, neighbours=(OWNER,), alike=("v", "w"))
    assert decode_fleet(row) == fleet
    draining = decode_fleet(FleetRow(0, 0, "draining", [], []))
    assert draining == Fleet(live=1, rank=None, status=WorkerStatus.DRAINING)


def test_a_worker_without_leases_holds_nothing() -> None:
    """Only workers that hold a lease have a row."""
    assert decode_holding(HoldingRow("w", ["s"], ["p", "q"])) == Holding(session_ids=("s",), process_ids=("p", "q"))
    assert decode_holding(None) == Holding(session_ids=(), process_ids=())


def test_damaged_rows_are_named() -> None:
    """A row that cannot be read names its worker; a damaged neighbour is left out."""
    for damage in ({"process": "{"}, {"agents": "[1]"}, {"status": "asleep"}):
        with pytest.raises(CorruptData, match="worker 'w'"):
            decode_worker(msgspec.structs.replace(ROW, **damage), 0)
    with pytest.raises(CorruptData, match="this worker"):
        decode_fleet(FleetRow(0, 0, "asleep", [], []))
    assert decode_fleet(FleetRow(0, 0, "active", [NeighbourRow("o", "w", "[]")], [])).neighbours == ()


def fleet(rank: int | None, live: int = 32) -> Fleet:
    return Fleet(live=live, rank=rank, status=WorkerStatus.ACTIVE)


@pytest.mark.parametrize(
    ("place", "poll_s", "beat_s"),
    [
        (None, 1.5, 30.0),
        (fleet(0, live=1), 1.5, 30.0),
        (fleet(0, live=2), 1.5, 3.0),
        (fleet(1), 4.5, 4.5),
        (fleet(2), 9.0, 9.0),
        (fleet(26), 117.0, 117.0),
        (fleet(27), 120.0, 120.0),
        (fleet(999), 120.0, 120.0),
        (fleet(None), 120.0, 120.0),
    ],
)
def test_the_pace_slows_down_with_the_rank(place: Fleet | None, poll_s: float, beat_s: float) -> None:
    """The duty worker polls for all; rank n waits n times as long as the stand-in, at most two minutes."""
    pace = plan_pace(place, 1.5, gets_hints=True)
    assert (pace.poll_s, pace.beat_ms / 1_000) == (poll_s, beat_s)


def test_32_idle_workers_poll_less_than_twice_a_second() -> None:
    """With default options a fleet of 32 makes at most 2 transactions a second in all."""
    rates = [1 / plan_pace(fleet(rank), 1.5, gets_hints=True).poll_s for rank in range(32)]
    assert 1.5 < sum(rates) < 1.75


def test_a_worker_without_hints_polls_as_if_alone() -> None:
    """It beats by its rank, since others do not rely on it, and polls at the interval of its options."""
    pace = plan_pace(fleet(3), 1.5, gets_hints=False)
    assert (pace.poll_s, pace.beat_ms) == (1.5, 13_500)


def test_extreme_intervals() -> None:
    """A long poll interval is kept, a beat is at most a day and at least a millisecond."""
    assert plan_pace(fleet(5), 500.0, gets_hints=True).poll_s == 500.0
    assert plan_pace(None, 86_400.0, gets_hints=True).beat_ms == 86_400_000
    assert plan_pace(None, 0.00001, gets_hints=True).beat_ms == 1
