"""Rules of leases: who gets a session's lease, who keeps it, and which fences hold."""

import msgspec
import pytest

from lash.errors import CorruptData, InvalidInput, LeaseLost
from lash.model.lease import (
    Acquired,
    Busy,
    Lease,
    LeaseFence,
    LeaseOwner,
    LeasePage,
    LocalProcess,
    Resource,
    ResourceKind,
    process_resource,
    session_resource,
)
from lash.plan.lease import (
    NEVER_HELD,
    Acquire,
    ClaimDecision,
    LeaseClaim,
    LeasePosition,
    LeaseRow,
    LiveLeaseRow,
    PreparedLeasePage,
    Reenter,
    Refuse,
    check_claim,
    check_fence,
    check_observed,
    check_ttl,
    decode_lease_page,
    encode_process,
    held_lease,
    outcome_of,
    plan_claim,
    plan_renewal,
    prepare_lease_page,
    require_fence,
)
from tests.rules.kit import FREE_LEASE, SESSION

replace = msgspec.structs.replace

MOST = 9_223_372_036_854_775_807
DAY_MS = 86_400_000
PROCESS = LocalProcess(host_id="host", boot_id="boot", pid=12, process_start="345")
PROCESS_TEXT = '{"host_id":"host","boot_id":"boot","pid":12,"process_start":"345"}'

HOLDER = LeaseOwner(owner_id="worker", incarnation_id="first", process=PROCESS)
RIVAL = LeaseOwner(owner_id="rival", incarnation_id="first")
ROW = LeaseRow(5, "worker", "first", PROCESS_TEXT, "token", 1_000, 2_000)
RESOURCE = session_resource(SESSION)
LEASE = Lease(resource=RESOURCE, owner=HOLDER, token="token", fencing=5, claimed_at_ms=1_000, expires_at_ms=2_000)
FENCE = LeaseFence(resource=RESOURCE, owner_id="worker", incarnation_id="first", token="token", fencing=5)


def test_a_lease_that_was_never_held_is_free_from_the_start() -> None:
    """It has no fencing number and no holder, and it expired at time zero."""
    assert NEVER_HELD == FREE_LEASE == LeaseRow(0, None, None, None, None, 0, 0)


def claim(row: LeaseRow, owner: LeaseOwner, now_ms: int, ttl_ms: int = 500) -> ClaimDecision:
    return plan_claim(row, now_ms, LeaseClaim(resource=RESOURCE, owner=owner, ttl_ms=ttl_ms))


def reclaim(
    owner: LeaseOwner = RIVAL, observed: LeaseFence = FENCE, *, dead: bool = True, now_ms: int = 1_500
) -> ClaimDecision:
    displacing = observed if dead else None
    return plan_claim(ROW, now_ms, LeaseClaim(resource=RESOURCE, owner=owner, ttl_ms=500, displacing=displacing))


def test_a_free_lease_is_acquired_with_the_next_number() -> None:
    """Fencing numbers grow across releases, and no holder is displaced."""
    assert claim(FREE_LEASE, RIVAL, 0) == Acquire(fencing=1, displaced=None)
    assert claim(LeaseRow(5, None, None, None, None, 0, 0), RIVAL, 0) == Acquire(fencing=6, displaced=None)


def test_a_live_lease_is_refused_to_others_and_names_its_holder() -> None:
    """Up to its last millisecond the lease belongs to its holder."""
    assert claim(ROW, RIVAL, 1_999) == Refuse(holder=LEASE)


@pytest.mark.parametrize("now_ms", [2_000, 2_001, MOST])
def test_a_lapsed_lease_is_taken_over(now_ms: int) -> None:
    """At the moment of expiry the lease is free, and the new holder learns whom it displaced."""
    assert claim(ROW, RIVAL, now_ms) == Acquire(fencing=6, displaced=LEASE)


def test_the_same_holder_reenters_a_live_lease() -> None:
    """Only the expiry moves; number and token stay."""
    assert claim(ROW, HOLDER, 1_800) == Reenter(lease=replace(LEASE, expires_at_ms=2_300))


def test_reentry_never_shortens() -> None:
    """A shorter time to live does not move the expiry."""
    assert claim(ROW, HOLDER, 1_100, ttl_ms=10) == Reenter(lease=LEASE)


def test_the_same_holder_acquires_anew_after_expiry() -> None:
    """A lapsed lease is never re-entered: another holder may have had it since."""
    assert claim(ROW, HOLDER, 2_000) == Acquire(fencing=6, displaced=LEASE)


@pytest.mark.parametrize(
    "other",
    [
        LeaseOwner(owner_id="worker", incarnation_id="second", process=PROCESS),
        LeaseOwner(owner_id="rival", incarnation_id="first", process=PROCESS),
    ],
    ids=["other incarnation", "other worker"],
)
def test_holders_are_the_same_only_when_both_ids_agree(other: LeaseOwner) -> None:
    """Neither worker id nor incarnation alone is enough."""
    assert claim(ROW, other, 1_500) == Refuse(holder=LEASE)


def test_expiry_saturates_at_the_largest_integer() -> None:
    """Times at the end of the range do not overflow."""
    row = LeaseRow(5, "worker", "first", PROCESS_TEXT, "token", 1_000, MOST)
    assert claim(row, HOLDER, MOST - 1) == Reenter(lease=replace(LEASE, expires_at_ms=MOST))


def test_exhausted_fencing_numbers_are_refused() -> None:
    """After the last fencing number no lease is granted."""
    assert claim(LeaseRow(MOST - 1, None, None, None, None, 0, 0), RIVAL, 0) == Acquire(fencing=MOST, displaced=None)
    with pytest.raises(InvalidInput, match="exhausted"):
        claim(LeaseRow(MOST, None, None, None, None, 0, 0), RIVAL, 0)


def test_the_observed_dead_holder_is_displaced_before_its_time() -> None:
    """A holder observed dead loses its live lease to the next number."""
    assert reclaim() == Acquire(fencing=6, displaced=LEASE)


@pytest.mark.parametrize(
    ("observed", "dead"),
    [
        (FENCE, False),
        (replace(FENCE, fencing=4), True),
        (replace(FENCE, token="other"), True),
        (replace(FENCE, owner_id="other"), True),
        (replace(FENCE, incarnation_id="other"), True),
        (replace(FENCE, resource=session_resource("other")), True),
    ],
)
def test_nobody_but_the_observed_dead_holder_is_displaced(observed: LeaseFence, dead: bool) -> None:  # noqa: FBT001
    """A holder that is not provably dead, or not the one that was observed, keeps the lease."""
    assert reclaim(observed=observed, dead=dead) == Refuse(holder=LEASE)


def test_a_reclaim_is_a_claim_where_nobody_is_in_the_way() -> None:
    """A lapsed lease is taken and an own one re-entered, whatever was observed."""
    assert reclaim(now_ms=2_000, dead=False) == Acquire(fencing=6, displaced=LEASE)
    assert reclaim(owner=HOLDER) == Reenter(lease=LEASE)


def test_a_renewal_moves_the_expiry_and_never_back() -> None:
    """The later of the two expiries holds."""
    later = plan_renewal(ROW, 1_500, fence=FENCE, ttl_ms=900)
    assert later == replace(LEASE, expires_at_ms=2_400)
    assert plan_renewal(ROW, 1_500, fence=FENCE, ttl_ms=0) == LEASE


def test_a_lapsed_lease_that_was_not_taken_is_renewed() -> None:
    """A renewal counts from now, also at and after the expiry; a write needs it first."""
    assert plan_renewal(ROW, 2_000, fence=FENCE, ttl_ms=900) == replace(LEASE, expires_at_ms=2_900)
    assert plan_renewal(ROW, 9_000, fence=FENCE, ttl_ms=900) == replace(LEASE, expires_at_ms=9_900)
    with pytest.raises(LeaseLost, match="it expired"):
        require_fence(ROW, FENCE, 2_000)


@pytest.mark.parametrize(
    ("row", "fence", "now_ms", "reason"),
    [
        (LeaseRow(5, None, None, None, None, 0, 0), FENCE, 1_500, "it was released; the fence shows fencing number 5"),
        (ROW, replace(FENCE, fencing=4), 1_500, "it is held under fencing number 5; the fence shows 4"),
        (ROW, replace(FENCE, token="other"), 1_500, "held under fencing number 5"),
        (ROW, replace(FENCE, owner_id="other"), 1_500, "held under fencing number 5"),
        (ROW, replace(FENCE, incarnation_id="other"), 1_500, "held under fencing number 5"),
        (replace(ROW, token="other"), FENCE, 2_000, "held under fencing number 5"),
    ],
)
def test_a_fence_that_does_not_hold_is_a_lost_lease(row: LeaseRow, fence: LeaseFence, now_ms: int, reason: str) -> None:
    """A released, superseded or foreign fence is reported as such, for renewals and for writes."""
    with pytest.raises(LeaseLost, match=reason) as caught:
        require_fence(row, fence, now_ms)
    assert caught.value.resource == RESOURCE
    with pytest.raises(LeaseLost, match=reason):
        plan_renewal(row, now_ms, fence=fence, ttl_ms=500)


def test_a_fence_that_holds_proves_its_lease() -> None:
    """The whole lease is returned, and its fence is the given one."""
    assert require_fence(ROW, FENCE, 1_999) == LEASE
    assert LEASE.fence == FENCE


def test_a_row_without_a_token_carries_no_lease() -> None:
    """A free row is free, whatever its last holder left in it."""
    free = LeaseRow(5, "worker", "first", PROCESS_TEXT, None, 0, 9_999)
    assert held_lease(free, RESOURCE) is None
    assert not free.is_live(0)
    assert held_lease(ROW, RESOURCE) == LEASE
    without_process = LeaseRow(5, "worker", "first", None, "token", 1_000, 2_000)
    assert held_lease(without_process, RESOURCE) == replace(LEASE, owner=replace(HOLDER, process=None))


@pytest.mark.parametrize(
    "row",
    [
        LeaseRow(5, None, "first", None, "token", 0, 9_999),
        LeaseRow(5, "worker", None, None, "token", 0, 9_999),
        LeaseRow(5, "worker", "first", "{", "token", 0, 9_999),
    ],
)
def test_a_row_that_contradicts_itself_is_corrupt(row: LeaseRow) -> None:
    """A token without a readable holder is never treated as a free lease."""
    with pytest.raises(CorruptData):
        held_lease(row, RESOURCE)


def test_callers_are_told_what_was_decided() -> None:
    """A re-entry is marked, so inner work does not release it; a refusal names the holder."""
    assert outcome_of(Reenter(lease=LEASE)) == Acquired(lease=LEASE, reentered=True, displaced=None)
    assert outcome_of(Refuse(holder=LEASE)) == Busy(holder=LEASE)


def test_a_claim_takes_an_owner_and_at_most_a_day() -> None:
    """The bounds themselves are allowed."""
    check_claim(HOLDER, 0)
    check_claim(RIVAL, DAY_MS)
    assert check_ttl(DAY_MS) == DAY_MS


@pytest.mark.parametrize(
    ("owner", "ttl_ms", "message"),
    [
        ("worker", 1, "owner must be a LeaseOwner, not str"),
        (LeaseOwner(owner_id="", incarnation_id="i"), 1, "owner_id is blank"),
        (LeaseOwner(owner_id="o", incarnation_id="i\0"), 1, "incarnation_id contains a NUL"),
        (HOLDER, -1, "ttl_ms must lie between 0"),
        (HOLDER, DAY_MS + 1, "ttl_ms must be at most 86,400,000"),
        (HOLDER, 1.5, "ttl_ms must be an integer"),
    ],
)
def test_a_claim_that_makes_no_sense_is_refused(owner: object, ttl_ms: object, message: str) -> None:
    """The error names the argument."""
    with pytest.raises(InvalidInput, match=message):
        check_claim(owner, ttl_ms)


def test_the_observed_lease_is_the_one_of_a_busy_answer() -> None:
    """A lease is returned as it is; a fence or nothing is refused."""
    assert check_observed(LEASE, ResourceKind.SESSION) is LEASE
    for wrong in (FENCE, None):
        with pytest.raises(InvalidInput, match="observed must be the Lease that a refused claim showed"):
            check_observed(wrong, ResourceKind.SESSION)
    with pytest.raises(InvalidInput, match=r"observed\.token is blank"):
        check_observed(replace(LEASE, token=""), ResourceKind.SESSION)


@pytest.mark.parametrize(
    ("fence", "message"),
    [
        ({"token": "t"}, "fence must be a LeaseFence, not dict"),
        (replace(FENCE, resource=SESSION), r"fence\.resource must be the Resource of a session or a process, not 's"),
        (
            replace(FENCE, resource=Resource(kind="session", id="s")),  # type: ignore[arg-type]
            r"fence\.resource must be the Resource of",
        ),
        (replace(FENCE, resource=session_resource("")), r"fence\.resource\.id is blank"),
        (
            replace(FENCE, resource=process_resource("p")),
            "must be the fence of a session, not that of process 'p'",
        ),
        (replace(FENCE, owner_id=7), r"fence\.owner_id must be text"),
        (replace(FENCE, incarnation_id="x" * 256), r"fence\.incarnation_id has 256 characters"),
        (replace(FENCE, token="\ud800"), r"fence\.token contains a lone surrogate"),
        (replace(FENCE, fencing=-1), r"fence\.fencing must lie between 0"),
        (replace(FENCE, fencing="5"), r"fence\.fencing must be an integer"),
    ],
)
def test_a_fence_of_the_wrong_kind_is_refused(fence: object, message: str) -> None:
    """A fence of the wrong type is refused before any read."""
    with pytest.raises(InvalidInput, match=message):
        check_fence("fence", fence, ResourceKind.SESSION)


def test_a_good_fence_is_returned() -> None:
    """Checking changes nothing."""
    assert check_fence("fence", FENCE, ResourceKind.SESSION) is FENCE


def test_a_claim_carries_the_process_of_its_owner_as_it_is_stored() -> None:
    """The text is the one that a lease row decodes from; an owner without a process has none."""
    assert LeaseClaim(resource=RESOURCE, owner=HOLDER, ttl_ms=1).process == PROCESS_TEXT
    assert LeaseClaim(resource=RESOURCE, owner=RIVAL, ttl_ms=1).process is None
    assert (encode_process(HOLDER), encode_process(RIVAL)) == (PROCESS_TEXT, None)


LIVE = LiveLeaseRow("session", SESSION, 7, 5, "worker", "first", PROCESS_TEXT, "token", 1_000, 2_000)
LEASE = Lease(resource=RESOURCE, owner=HOLDER, token="token", fencing=5, claimed_at_ms=1_000, expires_at_ms=2_000)


def test_a_list_of_leases_begins_before_all() -> None:
    """Without a cursor a list starts with the first lease; it reads one more than the page shows."""
    wanted = prepare_lease_page(ResourceKind.PROCESS, limit=10, cursor=None)
    assert wanted == PreparedLeasePage(kind="process", after=LeasePosition(-(2**63), "", 0), limit=11)


def test_a_page_of_leases_continues_after_its_last() -> None:
    """The cursor names the last lease that is shown; the last page has none."""
    wanted = prepare_lease_page(None, limit=1, cursor=None)
    page = decode_lease_page(wanted, [LIVE, replace(LIVE, key=8)])
    assert page.leases == (LEASE,)
    assert prepare_lease_page(None, limit=1, cursor=page.next_cursor).after == LeasePosition(1_000, "session", 7)
    assert decode_lease_page(wanted, [LIVE]) == LeasePage(leases=(LEASE,))


def test_a_list_of_leases_checks_its_arguments() -> None:
    """A kind is a ResourceKind, and a cursor is one of this list."""
    with pytest.raises(InvalidInput, match="expected a ResourceKind, got 'session'"):
        prepare_lease_page("session", limit=1, cursor=None)
    for cursor in ("?", "bDI6MTpzZXNzaW9uOjE=", "bDE6MTpvZGQ6MQ==", "bDE6MQ=="):
        with pytest.raises(InvalidInput, match="expected a cursor of a list of leases"):
            prepare_lease_page(None, limit=1, cursor=cursor)


def test_a_listed_lease_has_a_holder() -> None:
    """A row without a token is damage."""
    wanted = prepare_lease_page(None, limit=1, cursor=None)
    with pytest.raises(CorruptData, match="was listed as held and has no token"):
        decode_lease_page(wanted, [replace(LIVE, token=None)])
