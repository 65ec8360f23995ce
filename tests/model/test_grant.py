from __future__ import annotations

from typing import ClassVar

from tests.model.grant_rules import GrantRules
from tests.model.kit import run_machine
from tests.model.world import World


class GrantMachine(GrantRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset()


def test_grant(world: World) -> None:
    """D4.4(1): who may see what is what the model says, and a session that goes cancels nothing."""
    run_machine(GrantMachine, world, examples=20, steps=40)
