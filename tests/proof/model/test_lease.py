from __future__ import annotations

from typing import ClassVar

from tests.proof.model.kit import run_machine
from tests.proof.model.lease_rules import LeaseRules
from tests.proof.model.world import World


class LeaseMachine(LeaseRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            "create:new",
            "create:again",
            "delete:ok",
            "jump",
            "jump back",
            "other storage",
            "reopen",
            *(f"lease.claim:{each}" for each in ("acquired", "displaced", "reentered", "busy")),
            *(f"lease.reclaim:{each}" for each in ("acquired", "displaced", "reentered", "busy")),
            *(f"lease.{each}:SessionDeleted" for each in ("claim", "reclaim", "renew", "release", "holder")),
            *(f"lease.{each}:SessionNotFound" for each in ("claim", "holder")),
            "lease.renew:ok",
            "lease.renew:LeaseLost",
            "lease.release:freed",
            "lease.release:late",
            "lease.holder:ok",
        }
    )


def test_lease(world: World) -> None:
    """Whatever is claimed, renewed and released, both backends agree with the model."""
    run_machine(LeaseMachine, world, examples=27, steps=30)
