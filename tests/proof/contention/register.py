"""Checks whether overlapping calls can be put into one order that an object allows.

It is the search of Wing and Gong, made breadth first along the history: after each return it keeps every pair of a
state and of the calls that took effect without having returned. Where none is left, no order exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

S = TypeVar("S")

Configurations: TypeAlias = "set[tuple[S, frozenset[int]]]"


@dataclass(frozen=True)
class Call(Generic[S]):
    """One call. ``step`` returns the states in which it may leave an object, none if it cannot happen there.

    A call without an end may take effect at any time after its start, or never.
    """

    start: int
    end: int | None
    step: Callable[[S], tuple[S, ...]]


def first_impossible(calls: Sequence[Call[S]], initial: S) -> int | None:
    """Return the number of the first call whose result no order explains; None if there is an order for all."""
    moments = [(call.start, 0, number) for number, call in enumerate(calls)]
    moments += [(call.end, 1, number) for number, call in enumerate(calls) if call.end is not None]
    pending: set[int] = set()
    configurations: Configurations[S] = {(initial, frozenset())}
    for _, is_return, number in sorted(moments):
        if not is_return:
            pending.add(number)
            continue
        configurations = _returned(calls, configurations, pending, number)
        if not configurations:
            return number
        pending.discard(number)
    return None


def _returned(
    calls: Sequence[Call[S]], configurations: Configurations[S], pending: set[int], number: int
) -> Configurations[S]:
    """Return all possible states once this call has returned, whatever took effect shortly before it."""
    found: Configurations[S] = set()
    seen = set(configurations)
    open_ = list(configurations)
    while open_:
        state, done = open_.pop()
        if number in done:
            found.add((state, done - {number}))
            continue
        for other in pending - done:
            for next_state in calls[other].step(state):
                reached = (next_state, done | {other})
                if reached not in seen:
                    seen.add(reached)
                    open_.append(reached)
    return found
