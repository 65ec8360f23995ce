from __future__ import annotations

from typing import ClassVar

from tests.proof.model.kit import run_machine
from tests.proof.model.wait_rules import WaitRules
from tests.proof.model.world import World


class WaitMachine(WaitRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *("create:again", "delete:ok", "jump", "jump back", "other storage"),
            *(
                f"key:{each}"
                for each in ("ok", "SessionDeleted", "SessionNotFound", "ProcessPruned", "ProcessNotFound")
            ),
            *(f"open:{each}" for each in ("ok", "WaitUnknown", "tampered:WaitUnknown")),
            *(f"resolve:{each}" for each in ("Accepted", "AlreadyResolved", "UnknownOrRevoked", "tampered:ok")),
            *(f"cancel:{each}" for each in ("Accepted", "AlreadyResolved")),
            *("expire:some", "expire:none", "revoke:some", "revoke:none", "prune:some", "prune:none"),
            *("wait:ok", "wait:WaitTimedOut", "get:ok", "pending:ok", "reasons:ok", "prune_process:ok"),
        }
    )


def test_wait(world: World) -> None:
    """The first resolution wins, deadlines never move, and keys die with their owners, on both backends."""
    run_machine(WaitMachine, world, examples=18, steps=40)
