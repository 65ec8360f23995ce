from __future__ import annotations

from typing import ClassVar

from tests.proof.model.kit import run_machine
from tests.proof.model.process_lease_rules import ProcessLeaseRules
from tests.proof.model.world import World


class ProcessLeaseMachine(ProcessLeaseRules):
    WEIGHTS: ClassVar[dict[str, int]] = {
        "complete": 1,
        "create": 2,
        "delete": 2,
        "jump": 5,
        "prune": 2,
        "claim": 14,
        "signal": 3,
    }
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *("create:again", "delete:ok", "jump", "jump back", "other storage"),
            *(f"claim:{each}" for each in ("acquired", "displaced", "reentered", "busy")),
            *(f"claim:{each}" for each in ("terminal", "external", "owner_bound", "ProcessPruned")),
            *(f"reclaim:{each}" for each in ("acquired", "displaced", "reentered", "busy", "terminal")),
            *(f"renew:{each}" for each in ("ok", "LeaseLost", "ProcessPruned")),
            *(f"release:{each}" for each in ("True", "False")),
            *(f"park:{each}" for each in ("True", "False", "LeaseLost")),
            *(f"complete_leased:{each}" for each in ("ok", "LeaseLost", "ProcessTerminal")),
            *(f"abandon:{each}" for each in ("ok", "Conflict")),
            *("look:ok", "runnable:ok", "holder:ok"),
        }
    )


def test_process_lease(world: World) -> None:
    """Whichever owner claims, parks and completes, both backends agree with the model."""
    run_machine(ProcessLeaseMachine, world, examples=27, steps=40)
