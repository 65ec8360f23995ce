"""The feed of changes and its cursors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from lash.base.limits import check_identifier, check_integer
from lash.errors import (
    CorruptData,
    InvalidInput,
)
from lash.model.process.event import EventPage, ProcessEvent
from lash.model.process.process import (
    ChangeKind,
    ChangePage,
    ProcessChange,
    ProcessStatus,
)
from lash.plan.process.event import EventRow, decode_event


class ChangeRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored change. The feed is ordered by ``transaction_id`` (PostgreSQL only) and then by ``seq``."""

    seq: int
    process_id: str
    kind: str
    sequence: int | None
    status: str | None
    transaction_id: int = 0


class EventTailRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored event of any process, with its position in the feed."""

    seq: int
    process_id: str
    sequence: int
    event_type: str
    replay_key: str | None
    payload_hash: str
    payload: str
    wake: str | None
    occurred_at_ms: int
    transaction_id: int = 0


class ChangeCursor(NamedTuple):
    """A position in the feed of changes."""

    transaction_id: int
    seq: int


def decode_changes(rows: Sequence[ChangeRow], after: ChangeCursor) -> ChangePage:
    """Return a page of the feed and the cursor after it."""
    return ChangePage(changes=tuple(_decode_change(row) for row in rows), cursor=_cursor_after(rows, after))


def decode_tail(rows: Sequence[EventTailRow], after: ChangeCursor) -> EventPage:
    """Return a page of events of all processes and the cursor after it."""
    return EventPage(events=tuple(_decode_tail_event(row) for row in rows), cursor=_cursor_after(rows, after))


def decode_change_cursor(cursor: str | None) -> ChangeCursor:
    """Return the position that a cursor means, the start of the feed for None, or raise InvalidInput."""
    if cursor is None:
        return ChangeCursor(0, 0)
    try:
        version, transaction_id, seq = base64.urlsafe_b64decode(check_identifier("cursor", cursor)).split(b":")
        if version == b"c1":
            return ChangeCursor(
                check_integer("cursor", int(transaction_id), at_least=0), check_integer("cursor", int(seq), at_least=0)
            )
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"expected a cursor of the change feed, got {cursor!r:.80}")


def _cursor_after(rows: Sequence[ChangeRow] | Sequence[EventTailRow], after: ChangeCursor) -> str:
    last = ChangeCursor(rows[-1].transaction_id, rows[-1].seq) if rows else after
    return base64.urlsafe_b64encode(b"c1:%d:%d" % last).decode()


def _decode_tail_event(row: EventTailRow) -> ProcessEvent:
    event = EventRow(
        row.sequence, row.event_type, row.replay_key, row.payload_hash, row.payload, row.wake, row.occurred_at_ms
    )
    return decode_event(event, row.process_id)


def _decode_change(row: ChangeRow) -> ProcessChange:
    try:
        return ProcessChange(
            process_id=row.process_id,
            kind=ChangeKind(row.kind),
            sequence=row.sequence,
            status=None if row.status is None else ProcessStatus(row.status),
        )
    except ValueError as error:
        raise CorruptData(f"change {row.seq} of process {row.process_id!r} cannot be read: {error}") from None
