"""The scenarios by name, with what each of them is held to."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Final

from benchmarks.kit.report import Report
from benchmarks.kit.workspace import Workspace

Run = Callable[[Workspace], Report]


class Better(enum.StrEnum):
    """Which way a ratio is good."""

    MORE = "more"
    LESS = "less"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One measurement. ``target`` is in words, as the table shows it."""

    name: str
    group: str
    what: str
    run: Run
    better: Better = Better.MORE
    target: str = ""
    peers: tuple[str, ...] = ()
    part_of: str | None = None
    """The scenario that measures this one too, so that a run of all leaves it out."""


SCENARIOS: Final[dict[str, Scenario]] = {}


def register(scenario: Scenario) -> None:
    """Add a scenario; two of one name are a mistake."""
    if scenario.name in SCENARIOS:
        raise ValueError(f"there are two scenarios named {scenario.name}")
    SCENARIOS[scenario.name] = scenario


def load_all() -> dict[str, Scenario]:
    """Import every file of scenarios and return what they registered, in their order."""
    from benchmarks import scenarios

    scenarios.load()
    return SCENARIOS
