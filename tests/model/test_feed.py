from __future__ import annotations

from typing import ClassVar

from tests.model.feed_rules import FeedRules
from tests.model.kit import run_machine
from tests.model.world import World


class FeedMachine(FeedRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset()


def test_feed(world: World) -> None:
    """D4.4(7): every reader of the feed sees every change exactly once, deletions included."""
    run_machine(FeedMachine, world, examples=20, steps=40)
