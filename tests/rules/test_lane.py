"""Rules of the lanes of the work list."""

import itertools

import pytest

from lash.model.work import SessionLanes
from lash.plan.lane import OPEN_EVERY, choose_share, take_turns

FULL = SessionLanes(urgent=("u1", "u2"), resumed=("r1", "r2"), waiting=("w1", "w2"), newest=("n1", "n2"))


def test_each_lane_gets_every_fourth_place() -> None:
    """With sessions in all lanes, the urgent, newest, resumed and waiting lane take turns."""
    assert take_turns(FULL) == ("u1", "n1", "r1", "w1", "u2", "n2", "r2", "w2")


@pytest.mark.parametrize(
    ("first", "order"), [(1, "n1 r1 w1 u1 n2 r2 w2 u2"), (6, "r1 w1 u1 n1 r2 w2 u2 n2"), (7, "w1 u1 n1 r1 w2 u2 n2 r2")]
)
def test_a_caller_goes_on_where_it_stopped(first: int, order: str) -> None:
    """The first place decides which lane begins."""
    assert take_turns(FULL, first=first) == tuple(order.split())


@pytest.mark.parametrize(
    ("lanes", "order"),
    [
        (SessionLanes(waiting=("a", "b", "c", "d"), newest=("d", "c")), "a d b c"),
        (SessionLanes(urgent=("u",), waiting=("a", "b", "u"), newest=("u",)), "u a b"),
        (SessionLanes(urgent=("u", "v", "x"), waiting=("a",)), "u v x a"),
        (SessionLanes(urgent=("u", "v", "x", "y"), waiting=("a", "b")), "u v x a y b"),
        (SessionLanes(resumed=("r", "s"), waiting=("a",), newest=("a",)), "r a s"),
        (SessionLanes(newest=("n", "m")), "n m"),
        (SessionLanes(), ""),
    ],
)
def test_an_empty_lane_gives_its_place_away(lanes: SessionLanes, order: str) -> None:
    """A lane without a session left gives its place to the urgent, resumed, waiting or newest lane, in this order."""
    assert take_turns(lanes) == tuple(order.split())


def test_no_session_is_lost_or_repeated() -> None:
    """Whatever lanes a session is in, it is chosen once."""
    names = ("a", "b", "c")
    pairs = list(itertools.permutations(names, 2))
    for urgent, resumed, waiting, newest in itertools.product(pairs[:2], pairs[2:4], pairs[4:], pairs):
        lanes = SessionLanes(urgent=urgent, resumed=resumed, waiting=waiting, newest=newest)
        assert sorted(take_turns(lanes)) == ["a", "b", "c"]


def test_some_sessions_of_each_lane() -> None:
    """Lanes can be reduced to some of their sessions."""
    assert FULL.only(lambda each: each.endswith("1")) == SessionLanes(
        urgent=("u1",), resumed=("r1",), waiting=("w1",), newest=("n1",)
    )


SHARED = SessionLanes(
    urgent=("u",), resumed=("r1", "mine1", "r2"), waiting=("w1", "mine2", "w2"), newest=("n1", "mine3", "n2")
)
MINE = {"mine1", "mine2", "mine3"}
WAITED = {"r2", "w1", "w2", "n2"}


def test_a_worker_leaves_sessions_to_their_workers_until_they_have_waited() -> None:
    """It takes its own sessions first, then the ones that have waited; urgent ones are taken by any worker."""
    assert choose_share(SHARED, MINE, (), first=1) == SessionLanes(
        urgent=("u",), resumed=("mine1",), waiting=("mine2", "mine3"), newest=("mine3",)
    )
    assert choose_share(SHARED, MINE, WAITED, first=1) == SessionLanes(
        urgent=("u",), resumed=("mine1", "r2"), waiting=("mine2", "mine3", "w1", "w2", "n2"), newest=("mine3",)
    )


def test_no_session_that_has_waited_is_left_out() -> None:
    """A worker that finds none of its own takes any of the others."""
    everything = frozenset(SHARED.all)
    for first in range(18):
        assert frozenset(choose_share(SHARED, (), everything, first=first).all) == everything


def test_open_places_prefer_no_session_and_reach_each_lane() -> None:
    """There a worker takes what comes first in each lane; over some rounds each lane has such a place."""
    chosen = choose_share(SHARED, MINE, WAITED, first=OPEN_EVERY)
    assert chosen == SessionLanes(
        urgent=("u",), resumed=("mine1", "r2"), waiting=("w1", "mine2", "w2"), newest=("mine3", "n2")
    )
    firsts = {
        take_turns(choose_share(FULL, (), FULL.all, first=at), first=at)[0]
        for at in range(0, 4 * OPEN_EVERY, OPEN_EVERY)
    }
    assert firsts == {"u1", "n1", "r1", "w1"}
