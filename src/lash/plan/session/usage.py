"""Sums of token usage."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lash.base.limits import MAX_INTEGER, check_integer, check_text
from lash.errors import InvalidInput
from lash.model.session.usage import TokenUsage, UsageEntry


class UsageRow(msgspec.Struct, frozen=True, array_like=True):
    """The four counters of one source and model."""

    source: str
    model: str
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    reasoning_tokens: int

    @property
    def counters(self) -> tuple[int, int, int, int]:
        return (self.input_tokens, self.output_tokens, self.cached_input_tokens, self.reasoning_tokens)


def encode_usage(entries: tuple[UsageEntry, ...]) -> tuple[UsageRow, ...]:
    """Return one row per entry that counts anything; usage that was only cached counts."""
    rows = [_checked_row(index, entry) for index, entry in enumerate(entries)]
    return tuple(row for row in rows if any(row.counters))


def merge_usage(rows: Iterable[UsageRow]) -> tuple[UsageRow, ...]:
    """Sum the rows by source and model, in the order in which each pair was first seen."""
    totals: dict[tuple[str, str], tuple[int, ...]] = {}
    for row in rows:
        before = totals.get((row.source, row.model), (0, 0, 0, 0))
        totals[row.source, row.model] = tuple(map(sum, zip(before, row.counters, strict=True)))
    return tuple(UsageRow(source, model, *counters) for (source, model), counters in totals.items())


def require_room(totals: Iterable[UsageRow]) -> None:
    """Raise InvalidInput if a total no longer fits its column."""
    for total in totals:
        if max(total.counters) > MAX_INTEGER:
            raise InvalidInput(f"the usage of {total.source!r} on {total.model!r} exceeds {MAX_INTEGER} tokens")


def decode_usage(rows: Iterable[UsageRow]) -> tuple[UsageEntry, ...]:
    """Return the ledger of the stored totals."""
    return tuple(
        UsageEntry(
            source=row.source,
            model=row.model,
            usage=TokenUsage(
                input_tokens=row.input_tokens,
                output_tokens=row.output_tokens,
                cached_input_tokens=row.cached_input_tokens,
                reasoning_tokens=row.reasoning_tokens,
            ),
        )
        for row in rows
    )


def _checked_row(index: int, entry: object) -> UsageRow:
    if not isinstance(entry, UsageEntry) or not isinstance(entry.usage, TokenUsage):
        raise InvalidInput(f"usage[{index}] must be a UsageEntry with a TokenUsage, not {entry!r:.80}")
    what = f"usage[{index}]"
    usage = entry.usage
    return UsageRow(
        check_text(f"{what}.source", entry.source, limit=255),
        check_text(f"{what}.model", entry.model, limit=255),
        check_integer(f"{what}.input_tokens", usage.input_tokens, at_least=0),
        check_integer(f"{what}.output_tokens", usage.output_tokens, at_least=0),
        check_integer(f"{what}.cached_input_tokens", usage.cached_input_tokens, at_least=0),
        check_integer(f"{what}.reasoning_tokens", usage.reasoning_tokens, at_least=0),
    )
