from __future__ import annotations

from typing import ClassVar

from tests.model.kit import run_machine
from tests.model.process_lease_rules import ProcessLeaseRules
from tests.model.world import World


class ProcessLeaseMachine(ProcessLeaseRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset()


def test_process_lease(world: World) -> None:
    """D4.3(1), D4.4(2,3): whoever claims, parks and completes, both backends say what the model says."""
    run_machine(ProcessLeaseMachine, world, examples=30, steps=40)
