"""Histories that adapters remember."""

from __future__ import annotations

import pytest

import lash
from lash.adapters.histories import Histories, path_of
from lash.base.compression import BlobRef
from lash.model.session.commit import AppendResult, Unchanged
from lash.model.session.session import SessionConfig, SessionHead
from tests.factories.session import commit, node, started


def _head(revision: int, leaf: str | None) -> SessionHead:
    return SessionHead(
        session_id="a",
        revision=revision,
        config=SessionConfig(),
        current_frame_id=None,
        leaf_node_id=leaf,
        checkpoint_ref=BlobRef("0" * 64),
        node_count=1,
        updated_at_ms=0,
    )


def _extend(histories: Histories, name: str, revision: int, parent: str | None, leaf: str) -> None:
    histories.extend(name, AppendResult(revision=revision, parent_node_id=parent), leaf, [b"1234"])


def test_histories_are_bounded() -> None:
    """The oldest is forgotten when the bytes of all items exceed the limit."""
    histories = Histories(max_bytes=10)
    _extend(histories, "a", 1, None, "1")
    _extend(histories, "b", 1, None, "1")
    _extend(histories, "a", 2, "1", "2")
    assert ("a" in histories, "b" in histories) == (True, False)
    _extend(histories, "c", 1, None, "1")
    assert ("a" in histories, "c" in histories) == (False, True)


@pytest.mark.parametrize(("revision", "parent"), [(3, "1"), (2, "0")])
def test_a_history_that_another_writer_has_changed_is_forgotten(revision: int, parent: str) -> None:
    """Its next item follows another revision, or another leaf."""
    histories = Histories()
    _extend(histories, "a", 1, None, "1")
    _extend(histories, "a", revision, parent, "2")
    assert "a" not in histories


def test_a_history_holds_at_its_head_alone() -> None:
    """A session that was deleted and created again has the same revision and another leaf."""
    histories = Histories()
    _extend(histories, "a", 1, None, "1")
    _extend(histories, "a", 2, "1", "2")
    assert histories.find("a", _head(2, "2")) == [b"1234", b"1234"]
    assert histories.find("a", _head(3, "2")) is None
    assert histories.find("a", _head(2, "other")) is None
    assert histories.find("b", _head(2, "2")) is None


async def test_the_path_of_a_head_is_read_after_the_session_has_moved_on() -> None:
    """It has the nodes of its revision, whole or the last of them, whatever was added or taken off since."""
    changes = (commit(1, node("d", "c")), commit(2, graph=Unchanged(leaf_node_id="b")), commit(3, node("e", "b")))
    async with await lash.open("sqlite://") as storage:
        session = await started(storage, "s", "a", "b", "c")
        heads = [await session.head()]
        for change in (*changes, commit(4, graph=Unchanged(leaf_node_id=None))):
            await session.commit(change)
            heads.append(await session.head())
            for head, names in zip(heads, ("abc", "abcd", "ab", "abe", ""), strict=False):
                assert head is not None
                for last in (None, 1, 2, 9):
                    wanted = names if last is None else names[-last:]
                    assert [each.node_id for each in await path_of(session, head, last)] == list(wanted)
