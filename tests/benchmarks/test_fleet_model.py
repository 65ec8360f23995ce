"""The model of a fleet: it follows simple laws, and comes near what was measured with small fleets."""

from __future__ import annotations

import dataclasses

from benchmarks.fleet_model import Costs, Setting, simulate


def test_the_same_seed_gives_the_same_outcome() -> None:
    """A run depends on its seed alone."""
    setting = Setting(workers=3, rate=200, seconds=0.5)
    assert simulate(setting, seed=5) == simulate(setting, seed=5)
    assert simulate(setting, seed=5) != simulate(setting, seed=6)


def test_slots_bound_the_turns_of_a_fleet() -> None:
    """Two slots, and a step of 50 ms, allow at most 40 turns a second, and twice as many with two workers."""
    one, two = (simulate(Setting(workers=n, slots=2, askers=12, seconds=2)).turns_s for n in (1, 2))
    assert 34 < one <= 40
    assert 2 * 0.95 < two / one < 2 * 1.05


def test_a_used_up_processor_bounds_them_too() -> None:
    """With 10 ms of processor time for each write, two cores do at most 50 turns of four writes a second."""
    found = simulate(Setting(workers=8, rate=400, cores=2, seconds=3), Costs(write_us=10_000))
    assert found.turns_s <= 50
    assert found.cpu > 0.95
    assert found.first_limit == "server CPU"


def test_listeners_cost_most_in_a_large_fleet() -> None:
    """At 1,000 turns a second the server of 1,000 workers mostly wakes listeners."""
    setting = Setting(workers=1_000, rate=1_000, callers=20, cores=32, seconds=0.5)
    assert simulate(setting).first_limit == "waking listeners"
    shared = dataclasses.replace(setting, machines=83)
    assert simulate(shared).waking < simulate(setting).waking / 4
    assert simulate(shared).connections == 1_000 + 20 + 83
