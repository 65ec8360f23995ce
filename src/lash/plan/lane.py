"""Which of the sessions that a poll found are run first: the lanes of the work list take turns."""

from __future__ import annotations

import itertools

from lash.model.work import SessionLanes


def take_turns(lanes: SessionLanes, *, first: int = 0) -> tuple[str, ...]:
    """Return every session once, in the order in which to run them, beginning with place number ``first``.

    The urgent, the newest, the resumed and the waiting lane get every fourth place each. A lane without a session left
    gives its place to the urgent, the resumed, the waiting or the newest lane, in this order. So no lane starves, and
    a new conversation waits for at most three others, however many are queued.
    """
    urgent, resumed, waiting, newest = map(iter, (lanes.urgent, lanes.resumed, lanes.waiting, lanes.newest))
    cycle, substitutes = (urgent, newest, resumed, waiting), (urgent, resumed, waiting, newest)
    chosen: dict[str, None] = {}
    for place in range(first, first + len(lanes.all)):
        turn = itertools.chain(cycle[place % len(cycle)], *substitutes)
        chosen[next(each for each in turn if each not in chosen)] = None
    return tuple(chosen)
