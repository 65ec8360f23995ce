from __future__ import annotations

from typing import ClassVar

from tests.model.kit import run_machine
from tests.model.process_rules import ProcessRules
from tests.model.world import World


class ProcessMachine(ProcessRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset()


def test_process(world: World) -> None:
    """D4.4(1), H55: whatever is done to processes, both backends say what the model says."""
    run_machine(ProcessMachine, world, examples=40, steps=40)
