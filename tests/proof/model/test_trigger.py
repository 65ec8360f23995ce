from __future__ import annotations

from typing import ClassVar

from tests.proof.model.kit import run_machine
from tests.proof.model.trigger_rules import TriggerRules
from tests.proof.model.world import World


class TriggerMachine(TriggerRules):
    WEIGHTS: ClassVar[dict[str, int]] = {"retry": 10, "remove": 6, "delete": 3, "create": 4, "jump": 5, "squat": 6}
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *("create:again", "delete:ok", "jump", "jump back", "other storage"),
            *(f"register:{each}" for each in ("new", "known", "TriggerConflict", "SessionDeleted", "SessionNotFound")),
            *(f"update:{each}" for each in ("ok", "TriggerConflict", "TriggerNotFound")),
            *(f"enable:{each}" for each in ("ok", "TriggerConflict", "TriggerNotFound")),
            *(f"disable:{each}" for each in ("ok", "TriggerConflict", "TriggerNotFound")),
            *(f"remove:{each}" for each in ("ok", "TriggerConflict", "TriggerNotFound")),
            *(f"emit:{each}" for each in ("new", "known", "OccurrenceConflict")),
            *(f"delivery:{each}" for each in ("started", "rejected")),
            *(f"retry:{each}" for each in ("ok", "OccurrenceNotFound", "TriggerNotFound", "TriggerConflict")),
            *("prune_receipts:some", "prune:some", "prune:none", "prune_processes:ok", "squat:ok", "end:ok"),
            *("deliveries:ok", "occurrence:ok", "processes:ok", "grants:ok", "list:ok"),
        }
    )


def test_trigger(world: World) -> None:
    """Each occurrence starts each process once, and both backends agree with the model."""
    run_machine(TriggerMachine, world, examples=27, steps=40)
