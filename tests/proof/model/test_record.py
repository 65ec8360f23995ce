from __future__ import annotations

from typing import ClassVar

from tests.proof.model.kit import run_machine
from tests.proof.model.record_rules import RecordRules
from tests.proof.model.world import World


class RecordMachine(RecordRules):
    WEIGHTS: ClassVar[dict[str, int]] = {"jump": 6, "list_records": 12}
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *("create:again", "delete:ok", "jump", "jump back", "other storage"),
            *(f"put:{each}" for each in ("ok", "RecordConflict", "SessionDeleted", "SessionNotFound")),
            *(f"delete_record:{each}" for each in ("True", "False", "RecordConflict")),
            *(f"put_many:{each}" for each in ("ok", "RecordConflict")),
            *(f"commit:{each}" for each in ("ok", "RecordConflict", "RevisionConflict", "SessionDeleted")),
            *("get:found", "get:absent", "get:SessionDeleted", "list:some", "list:none", "prune:some", "prune:none"),
        }
    )


def test_record(world: World) -> None:
    """Records are those of a dictionary with versions, owners and expiry, alone and with commits, on both backends."""
    run_machine(RecordMachine, world, examples=18, steps=40)
