"""Rules of parked turns: when a turn is parked, and when it can be claimed again."""

import msgspec
import pytest

from lash.errors import InvalidInput, LeaseLost
from lash.model.lease import ParkedTurn
from lash.model.queue import EmptyReason, NothingClaimed
from lash.plan.lease import NEVER_HELD, LeaseRow
from lash.plan.park import Parking, check_parking, is_ready, known_moment, parked_turn, plan_park
from lash.plan.queue.claim import QueueFacts, QueueHead
from lash.plan.queue.claim_turn import plan_turn_claim
from tests.rules.kit import SESSION
from tests.rules.test_lease import LEASE, RIVAL, ROW

FOREVER = 2**63 - 1
PARKING = Parking(wake_seq=3, until_ms=FOREVER, waiting_for="session c")
HELD = msgspec.structs.replace(ROW, wake_seq=3)


def _parked(until_ms: int) -> LeaseRow:
    return LeaseRow(7, None, None, None, None, 0, 0, until_ms, 3, "session c")


def test_a_turn_is_parked_unless_it_was_woken() -> None:
    """A reason to continue that the run has not seen keeps the turn on the work list."""
    assert plan_park(HELD, 1_500, fence=LEASE.fence, parking=PARKING) is True
    woken = msgspec.structs.replace(HELD, wake_seq=4)
    assert plan_park(woken, 1_500, fence=LEASE.fence, parking=PARKING) is False


@pytest.mark.parametrize(("row", "now_ms"), [(HELD, 2_000), (NEVER_HELD, 1_500)])
def test_only_a_live_lease_parks(row: LeaseRow, now_ms: int) -> None:
    """An expired or released lease is lost."""
    with pytest.raises(LeaseLost):
        plan_park(row, now_ms, fence=LEASE.fence, parking=PARKING)


@pytest.mark.parametrize(
    ("row", "ready"),
    [
        (_parked(5_000), True),
        (_parked(5_001), False),
        (NEVER_HELD, False),
        (LeaseRow(7, None, None, None, None, 0, 0, 1), False),
    ],
)
def test_a_parked_turn_is_ready_from_its_moment_on(row: LeaseRow, *, ready: bool) -> None:
    """A session that only pauses has no parked turn."""
    assert is_ready(row, 5_000) is ready


@pytest.mark.parametrize(("until_ms", "shown"), [(5_001, 5_001), (FOREVER, None)])
def test_no_turn_is_claimed_while_one_is_parked(until_ms: int, shown: int | None) -> None:
    """The answer names the moment at which the turn can be claimed, if there is one."""
    facts = QueueFacts(candidates=[], command_seq=None, any_late=True, any_claimed=False, next_available_at_ms=None)
    head = QueueHead(now_ms=5_000, lease=_parked(until_ms), facts=facts)
    answer = plan_turn_claim(head, session_id=SESSION, owner=RIVAL)
    assert answer == NothingClaimed(reason=EmptyReason.PARKED, next_available_at_ms=shown)


def test_a_parked_turn_is_shown() -> None:
    """What it waits for, and until when if there is a moment."""
    assert parked_turn(_parked(9)) == ParkedTurn(waiting_for="session c", until_ms=9)
    assert parked_turn(_parked(FOREVER)) == ParkedTurn(waiting_for="session c")
    assert parked_turn(NEVER_HELD) is None


def test_moments() -> None:
    """The moment that never comes is none."""
    assert [known_moment(each) for each in (None, 4, FOREVER)] == [None, 4, None]


def test_arguments() -> None:
    """Without a moment a turn is parked until it is woken; what cannot be stored is refused."""
    assert check_parking(3, None, "session c") == PARKING
    assert check_parking(3, 9, "session c").until_ms == 9
    for arguments in ((-1, None, "x"), (0, -1, "x"), (0, None, " ")):
        with pytest.raises(InvalidInput):
            check_parking(*arguments)
