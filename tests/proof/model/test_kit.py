from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar

import msgspec
import pytest

from lash.model.queue import Batch, Delivery, Slot, TurnInput
from tests.proof.model.kit import Machine, Refused, action, run_machine
from tests.proof.model.names import Names
from tests.proof.model.world import Side, World

_ID = "0190c2d4e5f67abc8def0123456789ab"


class Starved(Machine):
    """Lists a class that it never reaches."""

    CLASSES: ClassVar[frozenset[str]] = frozenset({"create:ok", "create:SessionDeleted"})

    @action()
    def create(self) -> None:
        self.step("create", _create, lambda got: got)


class Parted(Starved):
    """Does something on one side only."""

    CLASSES: ClassVar[frozenset[str]] = frozenset()

    @action()
    def create_on_one_side(self) -> None:
        self.world.run(self.world.sides[0].run(_create))


class Mistaken(Starved):
    """Has a model that refuses what the stores do."""

    @action()
    def create(self) -> None:
        self.step("create", _create, _refuse)


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (Starved, r"alphabet starvation: Starved never reached \['create:SessionDeleted'\]"),
        (Parted, "sqlite and postgres differ"),
        (Mistaken, "the model refuses with"),
    ],
    ids=["starved", "parted", "mistaken"],
)
def test_a_machine_fails(world: World, machine: type[Machine], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that is never reached, rows or results that differ, and a model that disagrees each fail the run."""
    monkeypatch.setenv("LASH_MODEL_SHRINK", "0")
    monkeypatch.delenv("LASH_MODEL_EXAMPLES", raising=False)
    with pytest.raises(AssertionError, match=message):
        run_machine(machine, world, examples=1, steps=12)


def test_what_a_side_made_up_is_translated_there_and_back() -> None:
    """Ids get symbols in order of appearance, and so do row numbers; ids chosen by callers stay."""
    names = Names()
    batch = Batch(
        session_id="s",
        batch_id=_ID,
        seq=70,
        payloads=(TurnInput.of_text(f"said by {_ID}, not by {'a' * 64}"),),
        source_key=None,
        delivery=Delivery.EARLIEST_SAFE_BOUNDARY,
        slot=Slot.JOIN,
        merge_key=None,
        available_at_ms=0,
        enqueued_at_ms=70,
        attempts=0,
    )
    symbolic = names.symbolic(batch)
    said = TurnInput.of_text(f"said by @0@, not by {'a' * 64}")
    assert symbolic == msgspec.structs.replace(batch, batch_id="@0@", seq=1, payloads=(said,))
    assert names.own(symbolic) == batch


def _create(side: Side) -> Awaitable[object]:
    return side.storage.sessions.create("s")


def _refuse(_got: object) -> object:
    raise Refused("SessionDeleted")
