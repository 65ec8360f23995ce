from __future__ import annotations

from typing import ClassVar

from tests.proof.model.effect_rules import EffectRules
from tests.proof.model.kit import run_machine
from tests.proof.model.world import World


class EffectMachine(EffectRules):
    WEIGHTS: ClassVar[dict[str, int]] = {
        "finish": 9,
        "jump": 4,
        "open_group": 4,
        "begin_seen": 6,
        "delete": 3,
        "read": 3,
    }
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *("create:again", "delete:ok", "jump", "jump back", "other storage"),
            *(f"begin:Effect{each}" for each in ("Claimed", "Replayed", "Busy", "Unknown", "Mismatch", "NotRecorded")),
            *(f"begin:{each}" for each in ("taken over", "Conflict", "SessionDeleted", "ProcessPruned")),
            *(f"take_over:{each}" for each in ("ok", "Conflict", "EffectMismatch", "EffectNotRecorded")),
            *(f"renew:{each}" for each in ("ok", "EffectLeaseLost")),
            *(f"finish:{each}" for each in ("ok", "EffectLeaseLost")),
            *(f"fail:{each}" for each in ("ok", "EffectLeaseLost")),
            *("release:True", "release:False", "commit:ok", "prune:ok", "retire:ok"),
            *(f"record:{each}" for each in ("ok", "LeaseLost", "LeaseLost", "Conflict", "EffectMismatch")),
            *("open_group:ok", "open_group:Conflict", "get:ok", "list:ok", "group:ok"),
        }
    )


def test_effect(world: World) -> None:
    """Whichever caller begins, finishes and takes over, both backends agree with the model."""
    run_machine(EffectMachine, world, examples=45, steps=40)
