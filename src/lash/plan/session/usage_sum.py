"""Sums of token usage over all sessions."""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from lash.base.limits import (
    MAX_INTEGER,
    MIN_INTEGER,
    check_identifier,
    check_integer,
    check_limit,
    check_text,
)
from lash.base.shapes import read_json
from lash.errors import CorruptData, InvalidInput
from lash.model.session.usage import TokenUsage, UsageGroup, UsagePage, UsageSum

GROUPS: Final = tuple(group.value for group in UsageGroup)
_BEFORE_SESSION: Final = frozenset({UsageGroup.DAY, UsageGroup.MODEL, UsageGroup.AGENT})
"""The groups that come before the session in the order of the sums."""
"""What usage can be summed by, in the order of the sums."""
NO_DAY: Final = -1
"""The day of entries without a time, and of sums that are not by day."""
_CLOCK_MS: Final = 60 * 60 * 1000
"""How far the clock of the database may have been set back without an entry being overlooked: an hour."""
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()


class UsageFilter(NamedTuple):
    """Which entries of the ledgers are summed."""

    since_ms: int | None = None
    until_ms: int | None = None
    session_id: str | None = None
    agent: str | None = None
    model: str | None = None


class SumKey(msgspec.Struct, frozen=True, array_like=True):
    """What one sum is of. Parts that it was not grouped by are -1 or empty; ``day`` counts days since 1970."""

    day: int = NO_DAY
    model: str = ""
    agent: str = ""
    session_id: str = ""
    source: str = ""


class UsageSumRow(SumKey, frozen=True, array_like=True, kw_only=True):
    """The sums of one group: of each counter the upper 32 bits and the lower 32 bits, so that none overflows."""

    input_high: int
    input_low: int
    output_high: int
    output_low: int
    cached_high: int
    cached_low: int
    reasoning_high: int
    reasoning_low: int


class PreparedSums(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request for a page of sums. ``limit`` is one more than the page has."""

    by: frozenset[str]
    chosen: UsageFilter
    after: SumKey | None
    limit: int

    @property
    def way(self) -> str:
        """How the ledger is read: of one session, or of each that was active since a moment.

        Without a moment it is read from end to end, or in the order of the sessions if their sums are.
        """
        if self.chosen.session_id is not None:
            return "one"
        if self.chosen.since_ms is not None:
            return "each"
        if UsageGroup.SESSION not in self.by:
            return "all"
        return "each" if self.by & _BEFORE_SESSION else "in_order"

    @property
    def is_timed(self) -> bool:
        """Whether entries without a time are left out."""
        return self.chosen.since_ms is not None or self.chosen.until_ms is not None

    @property
    def since_ms(self) -> int:
        return MIN_INTEGER if self.chosen.since_ms is None else self.chosen.since_ms

    @property
    def until_ms(self) -> int:
        return MAX_INTEGER if self.chosen.until_ms is None else self.chosen.until_ms

    @property
    def floor_ms(self) -> int | None:
        """Sessions and entries that are older than this are not read. Within a session, entries are in order of time.

        The hour before the first moment is read too, because a clock may have been set back.
        """
        since = self.chosen.since_ms
        return None if since is None else max(since, MIN_INTEGER + _CLOCK_MS) - _CLOCK_MS


def prepare_sums(by: object, chosen: UsageFilter, *, limit: object, cursor: object) -> PreparedSums:
    """Check the arguments of a list of sums, or raise InvalidInput."""
    groups = _check_groups(by)
    for name, moment in (("since_ms", chosen.since_ms), ("until_ms", chosen.until_ms)):
        if moment is not None:
            check_integer(name, moment)
    for name, text in (("session_id", chosen.session_id), ("agent", chosen.agent)):
        if text is not None:
            check_identifier(name, text)
    if chosen.model is not None:
        check_text("model", chosen.model, limit=255)
    after = None if cursor is None else _decode_cursor(cursor, groups)
    return PreparedSums(by=groups, chosen=chosen, after=after, limit=check_limit(limit) + 1)


def decode_sums(wanted: PreparedSums, rows: Sequence[UsageSumRow]) -> UsagePage:
    """Return the page of sums."""
    shown = rows[: wanted.limit - 1]
    return UsagePage(
        sums=tuple(_decode_sum(row, wanted.by) for row in shown),
        next_cursor=_encode_cursor(shown[-1], wanted.by) if len(rows) == wanted.limit else None,
    )


def _check_groups(by: object) -> frozenset[str]:
    names = ", ".join(GROUPS)
    if isinstance(by, str) or not isinstance(by, Sequence):
        raise InvalidInput(f"expected a sequence of {names}, got {by!r:.80}")
    for each in by:
        if each not in GROUPS:
            raise InvalidInput(f"unknown group {each!r:.80}; sum by {names}")
    return frozenset(map(str, by))


def _encode_cursor(last: UsageSumRow, by: frozenset[str]) -> str:
    key = SumKey(last.day, last.model, last.agent, last.session_id, last.source)
    return base64.urlsafe_b64encode(msgspec.json.encode(("u1", sorted(by), key))).decode()


def _decode_cursor(cursor: object, by: frozenset[str]) -> SumKey:
    try:
        # The cursor of long names is longer than an id may be.
        text = base64.urlsafe_b64decode(check_text("cursor", cursor).encode())
        version, groups, key = read_json(text, tuple[str, list[str], SumKey])
    except (binascii.Error, msgspec.DecodeError, UnicodeError, ValueError):
        pass
    else:
        if version == "u1" and groups == sorted(by):
            return key
    raise InvalidInput(f"expected a cursor of a list of sums by {', '.join(sorted(by))}, got {cursor!r:.80}")


def _decode_sum(row: UsageSumRow, by: frozenset[str]) -> UsageSum:
    return UsageSum(
        day=None if row.day == NO_DAY else _day(row.day),
        model=row.model if "model" in by else None,
        agent=row.agent or None,
        session_id=row.session_id or None,
        source=row.source if "source" in by else None,
        usage=TokenUsage(
            input_tokens=(row.input_high << 32) + row.input_low,
            output_tokens=(row.output_high << 32) + row.output_low,
            cached_input_tokens=(row.cached_high << 32) + row.cached_low,
            reasoning_tokens=(row.reasoning_high << 32) + row.reasoning_low,
        ),
    )


def _day(number: int) -> str:
    try:
        return datetime.date.fromordinal(_EPOCH + number).isoformat()
    except (ValueError, OverflowError):
        raise CorruptData(f"an entry of the ledger has the day {number}, which is beyond the calendar") from None
