from __future__ import annotations

from typing import ClassVar

from tests.model.kit import run_machine
from tests.model.schedule_rules import ScheduleRules
from tests.model.world import World


class ScheduleMachine(ScheduleRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset()


def test_schedule(world: World) -> None:
    """D4.5(3): each tick is emitted once or dropped as its policy says, however clocks jump, on both backends."""
    run_machine(ScheduleMachine, world, examples=30, steps=40)
