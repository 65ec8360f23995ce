"""Rules of assigning work to one of several workers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec

from lash.plan.dispatch import ReadyWork, count_steps, rank_workers
from lash.plan.worker import WorkerRow

WORKER = WorkerRow("w", "o", "m", 3, None, None, "1", 0, 1_000, 50, 4, 8, 4, 8, None, None, None, "c", "active")
SESSION = ReadyWork("s", "writer", None)
PROCESS = ReadyWork("p", "index", None)


def worker(name: str, **changes: Any) -> WorkerRow:  # noqa: ANN401 (columns)
    return msgspec.structs.replace(WORKER, worker_id=name, **changes)


def ranked(work: ReadyWork, *workers: WorkerRow, now_ms: int = 1_000, process: bool = False, **wishes: str) -> str:
    """Return the names of the workers in their order."""
    found = rank_workers(work, workers, now_ms, is_process=process, **wishes)
    return "".join(each.worker_id for each in found)


def test_the_order_is_that_of_the_work() -> None:
    """Each session has its own order of workers, whatever order they are known in, and loses only who leaves."""
    fleet = [worker(name) for name in "abcdef"]
    orders = {number: ranked(ReadyWork(f"s{number}", None, None), *fleet) for number in range(40)}
    assert all(sorted(order) == list("abcdef") for order in orders.values())
    assert {order[0] for order in orders.values()} == set("abcdef")
    for number, order in orders.items():
        work = ReadyWork(f"s{number}", None, None)
        assert ranked(work, *reversed(fleet)) == order
        assert ranked(work, *[each for each in fleet if each.worker_id != "c"]) == order.replace("c", "")


def test_only_workers_that_can_take_it() -> None:
    """A worker is passed over if it has no channel, is late, drains, has no free slot, or is excluded."""
    assert ranked(SESSION, worker("a", channel=None), worker("b", status="draining"), worker("c")) == "c"
    assert ranked(SESSION, worker("a", seen_at_ms=899), worker("b", seen_at_ms=900)) == "b"
    assert ranked(SESSION, worker("a", free_sessions=0), worker("b", free_processes=0)) == "b"
    assert ranked(PROCESS, worker("a", free_sessions=0), worker("b", free_processes=0), process=True) == "a"
    assert ranked(SESSION, worker("a"), worker("b"), excluded="a") == "b"
    assert ranked(SESSION) == ""


def test_a_worker_takes_what_it_serves() -> None:
    """Names of agents are for sessions, names of processes for processes."""
    picky = worker("a", agents='["writer"]', processes='["report"]')
    assert ranked(SESSION, picky) == "a"
    assert ranked(ReadyWork("s", "reader", None), picky) == ""
    assert ranked(PROCESS, picky, process=True) == ""
    assert ranked(ReadyWork("p", "report", None), picky, process=True) == "a"
    assert ranked(ReadyWork("p", None, None), picky, process=True) == ""


def test_a_worker_takes_the_labels_that_it_serves() -> None:
    """It gets work whose session has all of its labels, and nothing else."""
    picky = worker("a", labels='{"region":"eu","gpu":"yes"}')
    for labels, taken in (
        ('{"region":"eu","gpu":"yes","tier":"1"}', "a"),
        ('{"region":"eu","gpu":"no"}', ""),
        ('{"region":"eu"}', ""),
        ("{}", ""),
        (None, ""),
    ):
        assert ranked(ReadyWork("s", "writer", None, labels), picky) == taken
        assert ranked(ReadyWork("p", "index", None, labels), picky, process=True) == taken
        assert ranked(ReadyWork("s", "writer", None, labels), worker("b")) == "b"


def test_the_holder_gets_it_whatever_its_slots() -> None:
    """What concerns a held session goes to its holder, or to no worker if the holder cannot be reached."""
    held = ReadyWork("s", None, "b")
    assert ranked(held, worker("a"), worker("b", free_sessions=0, status="draining")) == "b"
    assert ranked(held, worker("a"), worker("b", channel=None)) == ""


def test_the_preferred_worker_comes_first() -> None:
    """Also if most of its slots are taken."""
    fleet = [worker(name, free_sessions=1 if name == "b" else 4) for name in "abc"]
    for number in range(10):
        assert ranked(ReadyWork(f"s{number}", None, None), *fleet, preferred="b")[0] == "b"


def test_a_busy_worker_yields_to_the_second_best() -> None:
    """The first two change places if the first has more than half of its slots taken and the second has not."""
    for work, process in ((SESSION, False), (PROCESS, True)):
        first, second, third = list(ranked(work, *[worker(name) for name in "abc"], process=process))

        def order(
            *free: int, names: str = first + second + third, work: ReadyWork = work, process: bool = process
        ) -> str:
            slots = [(each, 2 * each) if process else (each, each) for each in free]
            fleet = [
                worker(name, free_sessions=sessions, free_processes=processes)
                for name, (sessions, processes) in zip(names, slots, strict=True)
            ]
            return ranked(work, *fleet, process=process)

        assert order(2, 4, 4) == first + second + third
        assert order(1, 2, 4) == second + first + third
        assert order(1, 1, 4) == first + second + third
    assert ranked(SESSION, worker("a", free_sessions=1)) == "a"


def test_work_is_taken_at_once_by_the_worker_that_it_is_assigned_to() -> None:
    """Of all workers one waits for no step, and it is the first of the order in which work is assigned."""
    fleet = [worker(name) for name in "abcdef"]
    for number in range(40):
        work = ReadyWork(f"s{number}", None, None)
        waits = {each: count_steps(each, work.id, [other for other in "abcdef" if other != each]) for each in "abcdef"}
        assert [each for each, steps in waits.items() if steps == 0] == [ranked(work, *fleet)[0]]
    assert count_steps("a", "s", ()) == 0


def test_with_each_step_about_twice_as_many_workers_may_take_it() -> None:
    """Nearer workers wait no longer than others, and the steps of the last grow with the logarithm of their number."""
    names = [f"worker {number}" for number in range(64)]
    allowed = [0] * 9
    for number in range(50):
        work = ReadyWork(f"s{number}", None, None)
        order = [each.worker_id for each in rank_workers(work, map(worker, names), 1_000, is_process=False)]
        steps = [count_steps(each, work.id, [other for other in names if other != each]) for each in order]
        assert steps == sorted(steps)
        assert steps[-1] <= 1 + math.log2(64) + 1
        for step in range(9):
            allowed[step] += sum(each <= step for each in steps)
    # One each at first, then some, and after the second step about twice as many with each further one.
    assert allowed[0] == 50
    assert allowed[-1] == 50 * 64
    for less, more in itertools.pairwise(allowed[2:7]):
        assert 1.5 < more / less < 2.6


def test_the_order_is_the_same_on_both_databases() -> None:
    """The hash is MD5 of the worker's id and the id of the work, which PostgreSQL computes too; its least is best."""
    # md5sum prints 0c23… for "as0", 994a… for "bs0" and 0c73… for "cs0".
    assert ranked(ReadyWork("s0", None, None), *[worker(name) for name in "abc"]) == "acb"
