"""Rules of erasing nodes."""

from __future__ import annotations

import msgspec
import pytest

from lash.errors import InvalidInput, LeaseLost
from lash.model.lease import LeaseFence, process_resource, session_resource
from lash.model.session.node import ErasedEntry, Node
from lash.model.session.session import Retention
from lash.plan.lease import LeaseRow
from lash.plan.session.erase import (
    LONGEST_ERASED,
    ErasableNode,
    Erasure,
    ErasureFacts,
    PreparedErasure,
    plan_erasure,
    prepare_erasure,
)
from lash.plan.session.session import HeldNode
from tests.rules.kit import FREE_LEASE, NOON, SESSION

NOON_MS = int(NOON.timestamp() * 1000)
FENCE = LeaseFence(resource=session_resource(SESSION), owner_id="w", incarnation_id="1", token="t", fencing=3)
LEASE = LeaseRow(3, "w", "1", None, "t", 0, NOON_MS + 1)
FACTS = ErasureFacts(
    now_ms=NOON_MS,
    revision=6,
    keep=None,
    lease=FREE_LEASE,
    held=[HeldNode("a", "path")],
    found=[ErasableNode("a", True), ErasableNode("b", False)],
)
BODY = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"erased"}}'


def prepared(fence: LeaseFence | None = None, keep: int | None = 1) -> PreparedErasure:
    return prepare_erasure(SESSION, ["a", "b", "a"], fence, Retention(keep=keep))


def test_nodes_with_content_are_erased_in_the_next_revision() -> None:
    """Also a node on the active path is; the time of the erasure is that of the database."""
    expected = Erasure(node_ids=["a", "b"], body=BODY, user_messages=1, revision=7, retention_floor=7)
    assert prepared().node_ids == ("a", "b")
    assert plan_erasure(prepared(), FACTS) == expected
    longest = plan_erasure(prepared(), msgspec.structs.replace(FACTS, now_ms=NOON_MS + 123))
    assert longest is not None
    assert len(BODY) < len(longest.body) <= LONGEST_ERASED
    erased = Node(node_id="a", timestamp=NOON, entry=ErasedEntry())
    assert erased.kind == "erased"


@pytest.mark.parametrize(("keep", "floor"), [(1, 7), (3, 5), (None, 0)])
def test_checkpoints_are_dropped_as_by_a_commit(keep: int | None, floor: int) -> None:
    """The floor is that of a commit of the same revision."""
    erasure = plan_erasure(prepared(keep=keep), FACTS)
    assert erasure is not None
    assert erasure.retention_floor == floor


def test_nothing_to_erase_is_no_revision() -> None:
    """Without a node that has content nothing is written."""
    assert plan_erasure(prepared(), msgspec.structs.replace(FACTS, found=[])) is None


@pytest.mark.parametrize("holder", ["source", "fork"])
def test_a_shared_node_is_refused(holder: str) -> None:
    """A node of the source, and one that a fork inherits, stay as they are."""
    held = [msgspec.convert(["b", holder], HeldNode)]
    with pytest.raises(InvalidInput, match="'b'"):
        plan_erasure(prepared(), msgspec.structs.replace(FACTS, held=held))


def test_a_fence_must_be_live_and_of_this_session() -> None:
    """A lost lease, an expired one and that of another session are refused."""
    held = msgspec.structs.replace(FACTS, lease=LEASE)
    assert plan_erasure(prepared(FENCE), held) is not None
    other = msgspec.structs.replace(FENCE, resource=session_resource("other"))
    expired = msgspec.structs.replace(held, now_ms=NOON_MS + 1)
    for fence, facts in ((FENCE, FACTS), (FENCE, expired), (other, held)):
        with pytest.raises(LeaseLost):
            plan_erasure(prepared(fence), facts)
    with pytest.raises(InvalidInput):
        prepared(msgspec.structs.replace(FENCE, resource=process_resource("p")))


def test_the_last_revision_cannot_be_left() -> None:
    """A counter that is exhausted is reported."""
    with pytest.raises(InvalidInput, match="exhausted"):
        plan_erasure(prepared(), msgspec.structs.replace(FACTS, revision=2**63 - 1))


@pytest.mark.parametrize(("own", "floor"), [(None, 7), (0, 0), (3, 5)])
def test_the_retention_of_a_session_wins(own: int | None, floor: int) -> None:
    """An erasure drops checkpoints by the retention of its session, if that has one."""
    erasure = plan_erasure(prepared(keep=1), msgspec.structs.replace(FACTS, keep=own))
    assert erasure is not None
    assert erasure.retention_floor == floor
