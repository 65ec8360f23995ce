"""Rules of limits: which there are, which moment a reservation gets, and what identifies a place."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lash.base.codec import content_hash
from lash.base.limits import check_identifier, check_integer, check_text
from lash.errors import CorruptData, InvalidInput, LeaseLost
from lash.model.lease import LeaseFence, Resource, ResourceKind, process_resource, session_resource
from lash.model.limit import Limit, LimitPlace, LimitState, PlaceState, Rate, Reservation

MAX_COUNT: Final = 1_000_000
"""The most starts in a period, and at once: an interval has at least a microsecond."""
MAX_CONCURRENCY: Final = 10_000
"""The most that may run at once: every call under the limit reads the places that are taken."""
OFFER_MS: Final = 30_000
"""For how long a free place is kept for the run that is next; after it the run is behind all others."""
UNUSED_MS: Final = 3_600_000
"""For how long an empty line is kept."""
_STATES: Final = (PlaceState.WAITING, PlaceState.OFFERED, PlaceState.HELD)
"""The states by their stored numbers."""
_PERIODS_MS: Final = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_RATE: Final = re.compile(r"([0-9]{1,7})\s*/\s*([a-z]+)")


class ReservedRow(msgspec.Struct, frozen=True, array_like=True):
    """When a limit is free after a reservation, and the time of the storage."""

    free_at_us: int
    now_ms: int


class LimitRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored limit, and the time of the storage."""

    name: str
    key: str
    interval_us: int | None
    burst: int | None
    free_at_us: int | None
    concurrency: int | None
    held: int
    waiting: int
    now_ms: int


class PlaceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run that wants a place, or gives it back."""

    name: str
    key: str
    holder: str
    """A hash of the limit, the session or process, and the step."""
    fence: LeaseFence

    @property
    def session_id(self) -> str | None:
        resource = self.fence.resource
        return resource.id if resource.kind is ResourceKind.SESSION else None

    @property
    def process_id(self) -> str | None:
        resource = self.fence.resource
        return resource.id if resource.kind is ResourceKind.PROCESS else None


class LineRow(msgspec.Struct, frozen=True, array_like=True):
    """The name and key of a line: the places of one limit on concurrency."""

    name: str
    key: str


class EnteredRow(msgspec.Struct, frozen=True, array_like=True):
    """The place of a run in a line."""

    place: int
    state: int

    @property
    def is_held(self) -> bool:
        return _STATES[self.state] is PlaceState.HELD


class PlaceStateRow(msgspec.Struct, frozen=True, array_like=True):
    """The state of the place of one run."""

    holder: str
    state: int

    @property
    def is_waiting(self) -> bool:
        return _STATES[self.state] is PlaceState.WAITING


class PlaceRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored place."""

    place: int
    state: int
    since_ms: int
    session_id: str | None
    process_id: str | None


class Woken(msgspec.Struct, frozen=True, array_like=True):
    """What was woken because places became free."""

    sessions: int = 0
    """How many sessions have a reason to continue."""
    process_ids: list[str] = []

    def merged(self, other: Woken) -> Woken:
        return Woken(self.sessions + other.sessions, self.process_ids + other.process_ids)


def parse_rate(text: object, *, burst: object = 1) -> Rate:
    """Return the rate of a text such as ``60/minute``, or raise InvalidInput."""
    found = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
    period_ms = None if found is None else _PERIODS_MS.get(found[2])
    if found is None or period_ms is None:
        units = ", ".join(_PERIODS_MS)
        raise InvalidInput(f"expected a rate such as '60/minute', got {text!r:.80}; the units are {units}")
    return check_rate(Rate(count=int(found[1]), period_ms=period_ms, burst=check_integer("burst", burst, at_least=1)))


def check_rate(rate: object) -> Rate:
    """Return the rate, or raise InvalidInput."""
    if not isinstance(rate, Rate):
        raise InvalidInput(f"expected a Rate, got {type(rate).__name__}")
    counts = ("the count of a rate", rate.count), ("burst", rate.burst), ("period_ms", rate.period_ms)
    for what, number in counts:
        if check_integer(what, number, at_least=1) > (MAX_COUNT if what != "period_ms" else _PERIODS_MS["day"]):
            raise InvalidInput(f"{what} is too large: {number:,}")
    return rate


def make_limit(rate: object, burst: object, concurrency: object) -> Limit:
    """Return a declared limit, or raise InvalidInput."""
    if rate is None and concurrency is None:
        raise InvalidInput("a limit needs a rate or a concurrency: rate='60/minute', concurrency=4")
    if rate is None and burst != 1:
        raise InvalidInput("burst needs a rate: rate='60/minute', burst=5")
    return Limit(
        rate=None if rate is None else parse_rate(rate, burst=burst),
        concurrency=None if concurrency is None else check_concurrency(concurrency),
    )


def check_concurrency(concurrency: object) -> int:
    """Return how many may run at once, or raise InvalidInput."""
    number = check_integer("concurrency", concurrency, at_least=1)
    if number > MAX_CONCURRENCY:
        raise InvalidInput(f"concurrency is too large: {number:,}; at most {MAX_CONCURRENCY:,}")
    return number


def check_place(name: object, key: object, fence: object, step: object) -> PlaceRequest:
    """Return what identifies a place, or raise InvalidInput."""
    limit, part = check_name(name, key)
    if not isinstance(fence, LeaseFence):
        raise InvalidInput(f"expected a LeaseFence, got {type(fence).__name__}")
    owner = fence.resource
    parts = (limit, part, owner.kind.value, owner.id, check_text("step", step))
    holder = content_hash(msgspec.json.encode(parts))
    return PlaceRequest(name=limit, key=part, holder=holder, fence=fence)


def require_entered(row: EnteredRow | None, request: PlaceRequest) -> EnteredRow:
    """Return the place of a run, or raise LeaseLost: without its lease a run gets none."""
    if row is None:
        raise LeaseLost(request.fence.resource, "it is not live")
    return row


def check_name(name: object, key: object) -> tuple[str, str]:
    """Return the name and the key of a limit, which may be empty, or raise InvalidInput."""
    return check_identifier("the name of a limit", name), "" if key == "" else check_identifier(
        "the key of a limit", key
    )


def interval_us(rate: Rate) -> int:
    """Return the microseconds between two starts, rounded up: the rate is never exceeded."""
    return -(-rate.period_ms * 1_000 // rate.count)


def decode_reservation(row: ReservedRow, rate: Rate) -> Reservation:
    """Return the moment of a reservation: a burst before the limit is free, rounded up, and now at the earliest."""
    at_us = row.free_at_us - interval_us(rate) * rate.burst
    return Reservation(at_ms=max(row.now_ms, -(-at_us // 1_000)), now_ms=row.now_ms)


def decode_limit(row: LimitRow) -> LimitState:
    """Return the state of a stored limit."""
    state = LimitState(name=row.name, key=row.key, concurrency=row.concurrency, held=row.held, waiting=row.waiting)
    if row.interval_us is None or row.burst is None or row.free_at_us is None:
        return state
    last_us, now_us = row.free_at_us - row.interval_us * row.burst, row.now_ms * 1_000
    next_us = max(now_us, last_us + row.interval_us)
    return msgspec.structs.replace(
        state,
        interval_us=row.interval_us,
        burst=row.burst,
        waiting=row.waiting + max(0, -(-(last_us - now_us) // row.interval_us)),
        next_at_ms=-(-next_us // 1_000),
    )


def decode_place(row: PlaceRow) -> LimitPlace:
    """Return a stored place."""
    return LimitPlace(number=row.place, resource=_owner(row), state=_STATES[row.state], since_ms=row.since_ms)


def _owner(row: PlaceRow) -> Resource:
    if row.session_id is not None:
        return session_resource(row.session_id)
    if row.process_id is not None:
        return process_resource(row.process_id)
    raise CorruptData(f"place {row.place} belongs to no session or process")
