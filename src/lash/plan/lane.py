"""Which of the sessions that a poll found are run first: the lanes of the work list take turns."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Final

from lash.model.work import SessionLanes

OPEN_EVERY: Final = 9
"""Each place of this number is open. Not a multiple of four, so that each lane has such places."""


def is_open(place: int) -> bool:
    """Return whether a worker takes the session that has waited longest at this place, whatever its own are."""
    return place % OPEN_EVERY == 0


def choose_share(lanes: SessionLanes, own: Collection[str], waited: Collection[str], *, first: int = 0) -> SessionLanes:
    """Return the sessions to choose from beside other workers, beginning with place number ``first``.

    A worker takes its own sessions first: only it prefers them, and it has their histories. It leaves the others to
    their workers until they have waited. At open places the order of the lanes stays, so the sessions of a slow worker
    get their turn. What is urgent goes to any worker.
    """
    taken = lanes.only(lambda each: each in own or each in waited or each in lanes.urgent)
    if is_open(first):
        return taken

    def own_first(lane: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(lane, key=lambda each: each not in own))

    # A new conversation comes forward at its own worker alone; the others find it in the waiting lane.
    newest = tuple(each for each in taken.newest if each in own)
    resumed, waiting = own_first(taken.resumed), own_first((*taken.waiting, *taken.newest))
    return SessionLanes(urgent=taken.urgent, resumed=resumed, waiting=tuple(dict.fromkeys(waiting)), newest=newest)


def take_turns(lanes: SessionLanes, *, first: int = 0) -> tuple[str, ...]:
    """Return every session once, in the order in which to run them, beginning with place number ``first``.

    The urgent, the newest, the resumed and the waiting lane get every fourth place each. A lane without a session left
    gives its place to the urgent, the resumed, the waiting or the newest lane, in this order. So no lane starves, and
    a new conversation waits for at most three others, however many are queued.
    """
    if len(every := lanes.all) <= 1:
        return every
    urgent, resumed, waiting, newest = map(iter, (lanes.urgent, lanes.resumed, lanes.waiting, lanes.newest))
    cycle, substitutes = (urgent, newest, resumed, waiting), (urgent, resumed, waiting, newest)
    chosen: dict[str, None] = {}
    for place in range(first, first + len(every)):
        turn = itertools.chain(cycle[place % len(cycle)], *substitutes)
        chosen[next(each for each in turn if each not in chosen)] = None
    return tuple(chosen)
