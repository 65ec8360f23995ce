from __future__ import annotations

from typing import ClassVar

from tests.proof.model.grant_rules import GrantRules
from tests.proof.model.kit import run_machine
from tests.proof.model.world import World


class GrantMachine(GrantRules):
    WEIGHTS: ClassVar[dict[str, int]] = {"signal": 0, "request": 0, "prune": 3, "complete": 2, "grant": 14}
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *("create:again", "delete:ok", "jump", "jump back", "other storage"),
            *(f"grant:{each}" for each in ("ok", "ProcessNotFound", "ProcessPruned")),
            *(f"revoke:{each}" for each in ("True", "False")),
            *(f"transfer:{each}" for each in ("ok", "GrantNotFound", "InvalidInput")),
            *("list:ok", "has:ok", "of_process:ok", "of_process:ProcessNotFound"),
            *(f"detach:{each}_count" for each in ("revoked_grant", "cleared_wake_target")),
            *(f"detach:{each}_process_ids" for each in ("orphaned", "preserved")),
        }
    )


def test_grant(world: World) -> None:
    """Grants are those of the model, and deleting a session cancels no process."""
    run_machine(GrantMachine, world, examples=18, steps=40)
