"""Lists of the queued batches of all sessions."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.base.limits import check_limit
from lash.errors import CorruptData, InvalidInput
from lash.model.lease import ParkedTurn
from lash.model.queue import QueuedBatch, QueuedState
from lash.plan.park import known_moment
from lash.plan.queue.dead_letter import check_after
from lash.plan.queue.queue import BatchRow, decode_batch
from lash.plan.session.page import IdRange, ids_of

_WAYS: Final = {QueuedState.DELAYED: "delayed", QueuedState.PARKED: "delayed", QueuedState.CLAIMED: "claimed"}
"""The states that have indexes; most batches are ready."""


class QueuedRow(BatchRow, frozen=True, array_like=True):
    """A stored batch of any session, its state, and what the parked turn of the session waits for."""

    session_id: str
    state: str
    waiting_for: str | None = None
    paused_until_ms: int | None = None


class PreparedQueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request for one page of queued batches. ``way`` names the index that is read."""

    way: str
    ids: IdRange | None
    state: str | None
    after: int
    limit: int


def prepare_queue_page(*, prefix: object, state: object, limit: object, after: object) -> PreparedQueuePage:
    """Check the arguments of a list, or raise InvalidInput."""
    if state is not None and not isinstance(state, QueuedState):
        raise InvalidInput(f"expected a QueuedState, got {state!r:.80}")
    ids = ids_of(prefix)
    return PreparedQueuePage(
        way="prefix" if ids is not None else "all" if state is None else _WAYS.get(state, "all"),
        ids=ids,
        state=None if state is None else state.value,
        after=check_after(after),
        limit=check_limit(limit),
    )


def decode_queued(row: QueuedRow) -> QueuedBatch:
    """Return the batch that a row stores, and its state."""
    try:
        state = QueuedState(row.state)
    except ValueError as error:
        raise CorruptData(f"batch {row.batch_id!r} cannot be read: {error}") from None
    parked = None
    if state is QueuedState.PARKED and row.waiting_for is not None:
        parked = ParkedTurn(waiting_for=row.waiting_for, until_ms=known_moment(row.paused_until_ms))
    return QueuedBatch(batch=decode_batch(row, row.session_id), state=state, parked=parked)
