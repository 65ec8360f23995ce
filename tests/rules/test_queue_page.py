"""Rules of lists of queued batches."""

import msgspec
import pytest

from lash.errors import CorruptData, InvalidInput
from lash.model.lease import ParkedTurn
from lash.model.queue import Batch, Delivery, QueuedBatch, QueuedState, SessionCommand, Slot
from lash.plan.queue.page import PreparedQueuePage, QueuedRow, decode_queued, prepare_queue_page
from lash.plan.session.page import IdRange, ids_of

ROW = QueuedRow(
    *(9, "b", None, "after_current_turn_commit", "join", None, 7, 5, 2, 1, 3),
    '{"payloads":[{"kind":"session_command","command":"c"}]}',
    *("s", "delayed"),
)


@pytest.mark.parametrize(
    ("prefix", "state", "way"),
    [
        (None, None, "all"),
        (None, QueuedState.READY, "all"),
        (None, QueuedState.DELAYED, "delayed"),
        (None, QueuedState.PARKED, "delayed"),
        (None, QueuedState.CLAIMED, "claimed"),
        ("a", QueuedState.CLAIMED, "prefix"),
        ("", None, "all"),
    ],
)
def test_the_most_selective_index_is_read(prefix: str | None, state: QueuedState | None, way: str) -> None:
    """A prefix decides, then a state that few batches have."""
    assert prepare_queue_page(prefix=prefix, state=state, limit=10, after=None) == PreparedQueuePage(
        way=way,
        ids=IdRange("a", "b") if prefix else None,
        state=None if state is None else state.value,
        after=0,
        limit=10,
    )


def test_ids_of_a_prefix_end_before_the_next_text() -> None:
    """The end is the text after all ids with the prefix; no prefix, and an empty one, choose all ids."""
    assert ids_of("ann-") == IdRange("ann-", "ann.")
    assert ids_of("") is ids_of(None) is None
    with pytest.raises(InvalidInput, match="prefix must be text, not int"):
        ids_of(1)


def test_arguments_are_checked() -> None:
    """A state is a QueuedState, not its name."""
    with pytest.raises(InvalidInput, match="expected a QueuedState, got 'ready'"):
        prepare_queue_page(prefix=None, state="ready", limit=1, after=0)


@pytest.mark.parametrize(("at_ms", "until_ms"), [(7, 7), (2**63 - 1, None)])
def test_a_parked_batch_names_its_reason(at_ms: int, until_ms: int | None) -> None:
    """A parked batch has what its turn waits for, and until when at most; other batches of the session have not."""
    row = msgspec.structs.replace(ROW, waiting_for="wait w", paused_until_ms=at_ms)
    parked = decode_queued(msgspec.structs.replace(row, state="parked"))
    assert (parked.state, parked.parked) == (QueuedState.PARKED, ParkedTurn(waiting_for="wait w", until_ms=until_ms))
    assert decode_queued(row).parked is None


def test_rows_become_batches() -> None:
    """A row is its batch and its state; an unknown state is damage."""
    assert decode_queued(ROW) == QueuedBatch(
        batch=Batch(
            session_id="s",
            batch_id="b",
            seq=9,
            payloads=(SessionCommand(command="c"),),
            source_key=None,
            delivery=Delivery.AFTER_CURRENT_TURN_COMMIT,
            slot=Slot.JOIN,
            merge_key=None,
            available_at_ms=7,
            enqueued_at_ms=5,
            attempts=2,
            failures=1,
            priority=3,
        ),
        state=QueuedState.DELAYED,
    )
    with pytest.raises(CorruptData, match="batch 'b' cannot be read"):
        decode_queued(msgspec.structs.replace(ROW, state="odd"))
