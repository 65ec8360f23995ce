from __future__ import annotations

from typing import ClassVar

from tests.proof.model.feed_rules import FeedRules
from tests.proof.model.kit import run_machine
from tests.proof.model.world import World


class FeedMachine(FeedRules):
    WEIGHTS: ClassVar[dict[str, int]] = {
        "signal": 0,
        "request": 0,
        "register": 10,
        "complete": 0,
        "tail": 8,
        "end": 8,
        "create": 1,
    }
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *("create:again", "delete:ok", "jump", "jump back", "other storage"),
            *("changes:some", "changes:none", "tail:some", "tail:none"),
            *("prune:some", "prune_behind:some", "prune_behind:none", "detach:ok"),
            *("register:new", "append:ok", "append:ProcessPruned", "complete:ok"),
        }
    )


def test_feed(world: World) -> None:
    """Every reader of the feed sees every change exactly once, deletions included."""
    run_machine(FeedMachine, world, examples=18, steps=40)
