from __future__ import annotations

from typing import ClassVar

from tests.model.kit import run_machine
from tests.model.trigger_rules import TriggerRules
from tests.model.world import World


class TriggerMachine(TriggerRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset()


def test_trigger(world: World) -> None:
    """D4.5(1,2): each occurrence starts each process once, and both backends say what the model says."""
    run_machine(TriggerMachine, world, examples=30, steps=40)
