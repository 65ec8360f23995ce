"""Runs of a process that follow each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from lash.model.value import JSON, Value


class TakenSignals(Value, frozen=True, kw_only=True):
    """The signals of one name that earlier runs have received: the first ``count``, and some behind them.

    ``sequence`` is the number of the last event of the first ``count``. ``beyond`` has the place of each further signal
    among those of the name, with the number of its event.
    """

    count: int = 0
    sequence: int = 0
    beyond: tuple[tuple[int, int], ...] = ()

    def next_place(self, taken: Collection[int]) -> int:
        """Return the place of the first signal that neither earlier runs nor waits of this run have taken."""
        first = self.count + 1
        held = {place for place, _ in self.beyond}.union(taken)
        return next(place for place in range(first, first + len(held) + 1) if place not in held)

    def after(self, taken: Mapping[int, int]) -> TakenSignals:
        """Return what is taken after a run; ``taken`` has the numbers of the events that it received, by place."""
        held = dict(self.beyond) | dict(taken)
        count, sequence = self.count, self.sequence
        while count + 1 in held:
            count += 1
            sequence = held.pop(count)
        return TakenSignals(count=count, sequence=sequence, beyond=tuple(sorted(held.items())))


class Continuation(Value, frozen=True, kw_only=True):
    """The begin of the next run of a process: its number, its input, and the signals that are not to come again."""

    run: int
    input: JSON
    signals: dict[str, TakenSignals] = msgspec.field(default_factory=dict)
