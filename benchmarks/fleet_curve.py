"""Prints what the model of a fleet finds, and draws it: ``python -m benchmarks.fleet_curve [--plots DIRECTORY]``.

For docs/internals/scaling.md: tables of large fleets, and of small ones that share two cores with their server.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from benchmarks.fleet_model import Outcome, Setting, simulate
from benchmarks.kit.curve import Point, curves

_CALLERS: Final = 20
"""Processes that call, in the large fleets, each on a machine of its own."""
_PER_MACHINE: Final = 16
_CORES: Final = 32
_WORKERS: Final = (32, 100, 300, 1_000)
_RATES: Final = (1_000, 2_000, 4_000, 8_000, 10_000, 12_000, 16_000)
_FAST: Final = 10_000
_SMALL: Final = (1, 2, 4, 8, 16, 32)
_HEADS: Final = (
    "workers",
    "listeners",
    "arriving/s",
    "done/s",
    "median",
    "server CPU",
    "waking",
    "choosing",
    "NOTIFY lock",
    "WAL",
    "connections",
)


def large_fleet(workers: int, rate: float, *, shares: bool = True, wakes_all: bool = True) -> Setting:
    """Return a fleet on machines of its own; if it shares, one program of each machine listens for all."""
    machines = math.ceil(workers / _PER_MACHINE) + _CALLERS if shares else 0
    return Setting(
        workers=workers, rate=rate, callers=_CALLERS, cores=_CORES, machines=machines, wakes_all=wakes_all, seconds=1.5
    )


def small_fleet(workers: int) -> Setting:
    """Return what scenario `fleet-throughput` measures: everything on one machine with two cores."""
    return Setting(workers=workers, sessions=64, slots=4, cores=2, shares_cores=True, machines=1, seconds=5.0)


def main() -> None:
    """Print the tables, and draw the plots if a directory for them is named."""
    parser = argparse.ArgumentParser(description="Model a fleet of workers on one PostgreSQL server.")
    parser.add_argument("--plots", type=Path, help="the directory for the plots")
    options = parser.parse_args()
    print("| " + " | ".join(_HEADS) + " |")
    print("|---:" * len(_HEADS) + "|")
    by_rate: dict[int, Outcome] = {}
    by_workers: dict[str, dict[int, Outcome]] = {}
    for workers in _WORKERS:
        for rate in _RATES if workers == _WORKERS[-1] else (_RATES[0], _FAST):
            found = _shown(large_fleet(workers, rate))
            if workers == _WORKERS[-1]:
                by_rate[rate] = found
            if rate == _RATES[0]:
                by_workers.setdefault("one listens for its machine", {})[workers] = found
        for name, shares, wakes_all in (("each program listens", False, True), ("PostgreSQL 19", True, False)):
            setting = large_fleet(workers, _RATES[0], shares=shares, wakes_all=wakes_all)
            by_workers.setdefault(name, {})[workers] = _shown(setting)
    print()
    _print_small()
    if options.plots is not None:
        (options.plots / "fleet-model-resources.svg").write_text(resources_plot(by_rate))
        (options.plots / "fleet-model-workers.svg").write_text(workers_plot(by_workers))


def resources_plot(found: dict[int, Outcome]) -> str:
    """Draw the used part of each resource over the turns that arrive."""
    parts: dict[str, Callable[[Outcome], float]] = {
        "server CPU, all": lambda each: each.cpu,
        "statements": lambda each: each.cpu - each.waking - each.choosing,
        "waking listeners": lambda each: each.waking,
        "choosing workers": lambda each: each.choosing,
        "lock of NOTIFY": lambda each: each.lock,
    }
    series = {
        name: [_point(rate, 100 * part(outcome)) for rate, outcome in found.items()] for name, part in parts.items()
    }
    title = f"model: 1,000 workers, server with {_CORES} cores: used part of each resource"
    return curves(title, "turns that arrive a second", series, " %")


def workers_plot(found: dict[str, dict[int, Outcome]]) -> str:
    """Draw the server's processor time of a turn over the number of workers."""
    series = {
        name: [_point(workers, each.cpu * _CORES * 1e3 / each.turns_s) for workers, each in outcomes.items()]
        for name, outcomes in found.items()
    }
    return curves(f"model: server CPU for a turn, at {_RATES[0]:,} turns a second", "worker processes", series, " ms")


def _point(at: float, value: float) -> Point:
    return Point(at, value, value, value)


def _shown(setting: Setting) -> Outcome:
    """Print one row of the table of large fleets."""
    found = simulate(setting)
    print("| " + " | ".join(_cells(setting, found)) + " |", flush=True)
    return found


def _cells(setting: Setting, found: Outcome) -> Iterable[str]:
    woken = "" if setting.wakes_all else ", one woken"
    yield f"{setting.workers:,}"
    yield f"{setting.listeners:,}{woken}"
    yield f"{setting.rate:,}"
    yield f"{found.turns_s:,.0f}"
    yield f"{found.median_s * 1e3:,.0f} ms"
    yield from (f"{part:.0%}" for part in (found.cpu, found.waking, found.choosing, found.lock))
    yield f"{found.wal_bytes_s / 1e6:,.0f} MB/s"
    yield f"{found.connections:,}"


def _print_small() -> None:
    print("| workers, on 2 cores with the server | turns/s | median | moved |")
    print("|---:|---:|---:|---:|")
    for workers in _SMALL:
        found = simulate(small_fleet(workers))
        print(f"| {workers} | {found.turns_s:,.0f} | {found.median_s * 1e3:,.0f} ms | {found.moved:.0%} |")


if __name__ == "__main__":
    main()
