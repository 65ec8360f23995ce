from __future__ import annotations

from typing import ClassVar

from tests.proof.model.kit import run_machine
from tests.proof.model.schedule_rules import ScheduleRules
from tests.proof.model.world import World


class ScheduleMachine(ScheduleRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *("create:again", "delete:ok", "jump", "jump back", "other storage"),
            *(f"register:{each}" for each in ("new", "known", "ScheduleConflict", "SessionDeleted", "SessionNotFound")),
            *(f"update:{each}" for each in ("ok", "ScheduleConflict", "ScheduleNotFound")),
            *(f"enable:{each}" for each in ("ok", "ScheduleNotFound")),
            *(f"disable:{each}" for each in ("ok", "ScheduleNotFound")),
            *(f"remove:{each}" for each in ("ok", "ScheduleConflict", "ScheduleNotFound")),
            *("fire:last:one", "fire:all:many", "fire:skip:many", "fire:skip:dropped", "fire:taken", "fire:none"),
            *("jump far", "jump far back", "jump to a change of clocks", "prune:some", "prune:none", "emit:ok"),
            *("get:ok", "list:ok", "next_fire:ok", "processes:ok"),
        }
    )


def test_schedule(world: World) -> None:
    """Each tick is emitted once or dropped as its policy says, however clocks jump, on both backends."""
    run_machine(ScheduleMachine, world, examples=18, steps=40)
