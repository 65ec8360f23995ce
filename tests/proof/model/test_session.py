from __future__ import annotations

from typing import ClassVar

from tests.proof.model.kit import run_machine
from tests.proof.model.session_rules import SessionRules
from tests.proof.model.world import World

_REFUSED = (
    "RevisionConflict",
    "LeaseLost",
    "GraphConflict",
    "GraphShared",
    "NodeConflict",
    "NodeNotFound",
    "BlobNotFound",
    "SessionDeleted",
    "SessionNotFound",
)


class SessionMachine(SessionRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *(f"commit:{each}" for each in ("ok", *_REFUSED)),
            *(f"create with:{each}" for each in ("new", "again", "NodeNotFound", "BlobNotFound")),
            *(f"append:{each}" for each in ("ok", "TurnConflict", "NodeConflict", "SessionDeleted", "SessionNotFound")),
            *(f"repeat:{each}" for each in ("ok", "TurnConflict", "SessionDeleted")),
            *(f"fork:{each}" for each in ("new", "again", "SessionExists", "NodeNotFound", "SessionNotFound")),
            *(f"tombstone:{each}" for each in ("ok", "InvalidInput", "SessionNotFound")),
            *(f"blob:{each}" for each in ("ok", "BlobNotFound")),
            *("load:ok", "load whole:ok", "node:ok", "vacuum:ok", "audit:ok", "sessions:ok"),
            *("edit:ok", "edit:SessionNotFound", "found:ok", "feed:ok"),
            *("create:again", "delete:ok", "jump", "jump back", "other storage", "reopen"),
        }
    )
    WEIGHTS: ClassVar[dict[str, int]] = {
        "claim_lease": 3,
        "renew_lease": 1,
        "reclaim_lease": 0,
        "release_lease": 1,
        "look_at_holder": 0,
        "jump": 1,
    }


def test_session(world: World) -> None:
    """Commits are applied whole or not at all, and every session reads as if nothing were shared."""
    run_machine(SessionMachine, world, examples=36, steps=50)
