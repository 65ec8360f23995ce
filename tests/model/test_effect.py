from __future__ import annotations

from typing import ClassVar

from tests.model.effect_rules import EffectRules
from tests.model.kit import run_machine
from tests.model.world import World


class EffectMachine(EffectRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset()


def test_effect(world: World) -> None:
    """D4.6(1-4): whoever begins, finishes and takes over, both backends say what the model says."""
    run_machine(EffectMachine, world, examples=30, steps=40)
