"""The model of a fleet: it follows simple laws, and comes near what was measured with small fleets."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.fleet_curve import large_fleet, resources_plot, workers_plot
from benchmarks.fleet_model import Costs, Setting, simulate


def test_the_same_seed_gives_the_same_outcome() -> None:
    """A run depends on its seed alone."""
    setting = Setting(workers=3, rate=200, seconds=0.5)
    assert simulate(setting, seed=5) == simulate(setting, seed=5)
    assert simulate(setting, seed=5) != simulate(setting, seed=6)


def test_slots_bound_the_turns_of_a_fleet() -> None:
    """Two slots, and a step of 50 ms, allow at most 40 turns a second, and twice as many with two workers."""
    one, two = (simulate(Setting(workers=n, slots=2, sessions=12, seconds=2)).turns_s for n in (1, 2))
    assert 34 < one <= 40
    assert 2 * 0.95 < two / one < 2 * 1.05


def test_a_used_up_processor_bounds_them_too() -> None:
    """With 10 ms of processor time for each write, two cores do at most 50 turns of four writes a second."""
    found = simulate(Setting(workers=8, rate=400, cores=2, seconds=3), Costs(write_us=10_000))
    assert found.turns_s <= 50
    assert found.cpu > 0.95
    assert found.first_limit == "statements"


def test_listeners_cost_most_in_a_large_fleet() -> None:
    """At 1,000 turns a second the server of 1,000 workers mostly wakes listeners."""
    setting = Setting(workers=1_000, rate=1_000, callers=20, cores=32, seconds=0.2)
    assert simulate(setting).first_limit == "waking listeners"
    shared = dataclasses.replace(setting, machines=83)
    assert simulate(shared).waking < simulate(setting).waking / 3
    assert simulate(shared).connections == 1_000 + 20 + 83


def test_a_turn_costs_what_its_stages_cost() -> None:
    """A turn with a step is four writes, three reads and two notifications, and its log is that of both."""
    costs = Costs(write_us=1_000, read_us=100, notify_us=10, choose_us=0, wake_us=0, lock_us=0)
    found = simulate(Setting(workers=4, rate=100, cores=1, seconds=4), costs)
    assert found.cpu / found.turns_s == pytest.approx((4 * 1_000 + 3 * 100 + 2 * 10) / 1e6, rel=0.05)
    assert found.wal_bytes_s / found.turns_s == pytest.approx(costs.turn_bytes + costs.step_bytes)


def test_a_session_keeps_its_worker_while_that_has_slots() -> None:
    """Histories are read again only if a fleet is full."""
    fleet = Setting(workers=4, slots=8, sessions=4, seconds=1)
    assert simulate(fleet).moved == 0
    assert simulate(dataclasses.replace(fleet, slots=1, sessions=24)).moved > 0


def test_each_turn_chooses_among_all_workers() -> None:
    """Messages that share a notification have one choice each, and replies have none."""
    costs = Costs(choose_us=2)
    found = simulate(Setting(workers=500, rate=400, cores=8, seconds=1), costs)
    assert found.choosing * 8 / found.turns_s == pytest.approx(500 * 2 / 1e6, rel=0.05)


def test_the_curves_are_drawn_from_what_was_found() -> None:
    """The plot of resources ends at the used part of the processor, that of workers at the cost of one turn."""
    found = {rate: simulate(dataclasses.replace(large_fleet(32, rate), seconds=0.1)) for rate in (100, 200)}
    assert f"server CPU, all: {100 * found[200].cpu:.3g} %" in resources_plot(found)
    drawn = workers_plot({"shared": {1: found[100], 2: found[200]}})
    assert f"shared: {found[200].cpu * 32 * 1e3 / found[200].turns_s:.3g} ms" in drawn
