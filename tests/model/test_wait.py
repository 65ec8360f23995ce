from __future__ import annotations

from typing import ClassVar

from tests.model.kit import run_machine
from tests.model.wait_rules import WaitRules
from tests.model.world import World


class WaitMachine(WaitRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset()


def test_wait(world: World) -> None:
    """D4.6(5): the first resolution wins, deadlines never move, and keys die with their owners, on both backends."""
    run_machine(WaitMachine, world, examples=30, steps=40)
