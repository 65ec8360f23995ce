"""What a commit becomes before any read, and what is refused there."""

import msgspec
import pytest

from lash.base.compression import BlobRef, Codec, Compression
from lash.errors import CommitTooLarge, InvalidInput, SessionBindingMismatch
from lash.model.lease import LeaseFence, session_resource
from lash.model.queue import ClaimCompletion
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.commit import Append, Commit, CommitBudget, ReplaceFull, Unchanged
from lash.model.session.frame import AgentFrame, ModelSpec
from lash.model.session.session import SessionConfig
from lash.model.session.usage import TokenUsage, UsageEntry
from lash.plan.session.commit import PreparedCommit, prepare_commit, retained
from lash.plan.session.usage import UsageRow
from tests.rules.kit import NOON, SESSION, appending, noted, rules, sha256

replace = msgspec.structs.replace

MOST = 9_223_372_036_854_775_807
FENCE = LeaseFence(
    resource=session_resource(SESSION), owner_id="worker", incarnation_id="first", token="token", fencing=5
)
DONE = ClaimCompletion(claim_id="c", token="t", batch_ids=("b",))


def commit(**fields: object) -> Commit:
    return replace(Commit(session_id=SESSION, expected_revision=4), **fields)


def prepared(given: Commit, **options: object) -> PreparedCommit:
    return prepare_commit(given, SESSION, rules(**options))  # type: ignore[arg-type]


def used(source: str, input_tokens: int) -> UsageEntry:
    return UsageEntry(source=source, model="large", usage=TokenUsage(input_tokens=input_tokens))


def test_a_commit_becomes_rows() -> None:
    """Everything that does not depend on the database is computed beforehand."""
    frame = AgentFrame(frame_id="f", created_at=NOON, execution_state=b"running")
    rows = prepared(
        commit(
            turn_id="turn",
            config=SessionConfig(provider_id="p", model=ModelSpec(id="large")),
            frames=(frame,),
            current_frame_id="f",
            graph=Append(nodes=(noted("n"),)),
            checkpoint=CheckpointDraft(turn_state=TurnState(turn_index=2), components={"tool_state": b"tools"}),
            usage=(used("turn", 1), used("idle", 0), used("turn", 2)),
        )
    )
    assert rows.scope_id == f"turn:{len(SESSION)}:{SESSION}:turn"
    assert rows.config == '{"provider_id":"p","model":{"id":"large"}}'
    assert [row.frame_id for row in rows.frames] == ["f"]
    assert [node.node_id for node in rows.nodes] == ["n"]
    assert rows.checkpoint.turn_state == '{"turn_index":2}'
    assert rows.components == {"tool_state": sha256(b"tools"), "frame:f": sha256(b"running")}
    assert {blob.ref: (blob.codec, blob.content) for blob in rows.blobs} == {
        sha256(b"tools"): (Codec.PLAIN, b"tools"),
        sha256(b"running"): (Codec.PLAIN, b"running"),
    }
    assert rows.usage == (UsageRow("turn", "large", 1, 0, 0, 0), UsageRow("turn", "large", 2, 0, 0, 0))
    assert rows.usage_totals == (UsageRow("turn", "large", 3, 0, 0, 0),)
    assert (rows.revision, rows.result.revision) == (5, 5)
    assert rows.result.checkpoint_ref == rows.checkpoint.ref
    assert rows.result.manifest.components == {"tool_state": sha256(b"tools")}


@pytest.mark.parametrize(
    ("named", "agent"),
    [("a", "a"), ("a" * 255, "a" * 255), ("a" * 256, None), ("", None), (7, None), (None, None), ("a\0", None)],
)
def test_the_agent_of_a_turn_is_read_from_its_state(named: object, agent: str | None) -> None:
    """A text that fits an index is the agent; a commit without one keeps that of the session."""
    state = TurnState(protocol_turn_options={"agent": named})
    assert prepared(commit(checkpoint=CheckpointDraft(turn_state=state))).agent == agent
    assert prepared(commit()).agent is None


def test_bytes_of_one_part_satisfy_the_ref_of_another() -> None:
    """A frame may name bytes that the checkpoint brings, and the reverse."""
    frame = AgentFrame(frame_id="f", created_at=NOON, execution_state_ref=BlobRef(sha256(b"a")))
    other = AgentFrame(frame_id="g", created_at=NOON, execution_state=b"b")
    components: dict[str, bytes | BlobRef] = {"a": b"a", "b": BlobRef(sha256(b"b")), "c": BlobRef(sha256(b"c"))}
    rows = prepared(commit(frames=(frame, other), checkpoint=CheckpointDraft(components=components)))
    assert rows.required_refs == {sha256(b"c")}


def test_bytes_are_packed_by_the_profile_of_the_storage() -> None:
    """The profile applies to checkpoint and frames, and changes no ref."""
    frame = AgentFrame(frame_id="f", created_at=NOON, execution_state=b"f" * 1_024)
    given = commit(frames=(frame,), checkpoint=CheckpointDraft(components={"a": b"a" * 1_024}))
    compact, plain = prepared(given, compression=Compression.COMPACT), prepared(given)
    assert [blob.codec for blob in compact.blobs] == [Codec.ZSTD, Codec.ZSTD]
    assert [blob.codec for blob in plain.blobs] == [Codec.PLAIN, Codec.PLAIN]
    assert compact.components == plain.components


@pytest.mark.parametrize(("keep", "floor"), [(1, 5), (3, 3), (None, 0)])
def test_older_checkpoints_are_dropped_by_the_retention(keep: int | None, floor: int) -> None:
    """Revision 5 keeps the last ``keep`` revisions, itself included, or all of them."""
    assert prepared(commit(), keep=keep).retention_floor == floor


@pytest.mark.parametrize(
    ("graph", "names"),
    [
        (Unchanged(), ()),
        (Unchanged(leaf_node_id=None), ()),
        (Unchanged(leaf_node_id="x"), ("x",)),
        (Append(nodes=(noted("a", "r"), noted("b", "a"))), ("a", "r", "b")),
        (Append(nodes=(noted("a"),), leaf_node_id="x"), ("a", "x")),
        (ReplaceFull(nodes=(noted("a", "r"),), leaf_node_id="a", replaced_node_count=0), ()),
    ],
)
def test_the_nodes_to_look_up_are_named_once_in_a_fixed_order(graph: object, names: tuple[str, ...]) -> None:
    """New nodes, their parents and a named leaf; a replacement looks up none."""
    assert prepared(commit(graph=graph)).named_nodes == names


def test_a_commit_for_another_session_is_refused() -> None:
    """A handle serves its own session only, and the error names both."""
    with pytest.raises(SessionBindingMismatch) as caught:
        prepare_commit(appending(), "other", rules())
    assert (caught.value.bound_session_id, caught.value.attempted_session_id) == ("other", SESSION)


def test_a_commit_cannot_release_the_lease_of_another_session() -> None:
    """A release must name the commit's own session."""
    with pytest.raises(SessionBindingMismatch) as caught:
        prepared(commit(release=replace(FENCE, resource=session_resource("other"))))
    assert (caught.value.bound_session_id, caught.value.attempted_session_id) == (SESSION, "other")


def test_a_release_that_is_the_fence_is_checked_like_any() -> None:
    """It may be the same object as the fence; it must name the commit's own session then too."""
    assert prepared(commit(fence=FENCE, release=FENCE)).commit.release == FENCE
    other = replace(FENCE, resource=session_resource("other"))
    with pytest.raises(SessionBindingMismatch):
        prepared(commit(fence=other, release=other))
    blank = replace(FENCE, token="")
    with pytest.raises(InvalidInput, match=r"fence\.token is blank"):
        prepared(commit(fence=blank, release=blank))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("text", "expected a Commit, got str"),
        (commit(session_id=" "), "session_id is blank"),
        (commit(expected_revision=-1), "expected_revision must lie between 0"),
        (commit(expected_revision=True), "expected_revision must be an integer"),
        (commit(expected_revision=MOST), "the revision counter of this session is exhausted"),
        (commit(turn_id=""), "^turn_id is blank"),
        (commit(current_frame_id=7), "current_frame_id must be text"),
        (commit(fence="token"), "fence must be a LeaseFence"),
        (commit(release="token"), "release must be a LeaseFence"),
        (commit(release=replace(FENCE, token="")), r"release\.token is blank"),
        (commit(frames={}), "frames must be a tuple, not dict"),
        (commit(usage=None), "usage must be a tuple, not NoneType"),
        (commit(completions="claim"), "completions must be a tuple, not str"),
        (commit(completions=("claim",)), r"completions\[0\] must be a ClaimCompletion, not str"),
        (commit(completions=(DONE, DONE)), "completions names a claim twice"),
        (commit(attachments=("../../etc/passwd",)), "attachments must be 64 lowercase hex digits"),
        (commit(graph=None), "graph must be Unchanged, Append or ReplaceFull"),
        (commit(graph=Append(nodes=None)), "with a tuple of nodes"),  # type: ignore[arg-type]
        (commit(graph=ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=-1)), "replaced_node_count"),
        (commit(graph=Unchanged(leaf_node_id="")), "leaf_node_id is blank"),
        (commit(graph=Append(nodes=(), leaf_node_id=7)), "leaf_node_id must be text"),  # type: ignore[arg-type]
        (commit(config="x"), "config: "),
        (commit(config=SessionConfig(provider_id="\ud800")), "config contains a lone surrogate"),
        (commit(config=SessionConfig(provider_id=7)), r"config: .*provider_id"),  # type: ignore[arg-type]
        (commit(usage=(used("turn", MOST), used("turn", 1))), f"exceeds {MOST} tokens"),
    ],
)
@pytest.mark.parametrize("turn_id", ["turn", None])
def test_a_commit_that_cannot_be_stored_is_refused(wrong: object, message: str, turn_id: str | None) -> None:
    """The error names the field, whether or not the commit names a turn."""
    if isinstance(wrong, Commit) and wrong.turn_id is None:
        wrong = replace(wrong, turn_id=turn_id)
    with pytest.raises(InvalidInput, match=message):
        prepare_commit(wrong, SESSION, rules())  # type: ignore[arg-type]


def test_lists_are_taken_like_tuples() -> None:
    """Nodes, frames and usage may be lists."""
    frame = AgentFrame(frame_id="f", created_at=NOON)
    given = commit(frames=[frame], usage=[used("turn", 1)], graph=Append(nodes=[noted("n")]))  # type: ignore[arg-type]
    rows = prepared(given)
    assert (len(rows.frames), len(rows.usage), len(rows.nodes)) == (1, 1, 1)


def test_the_last_revision_can_be_committed() -> None:
    """The counter ends at the largest integer, not one before."""
    assert prepared(commit(expected_revision=MOST - 1)).revision == MOST


FULL = commit(
    frames=(AgentFrame(frame_id="f", created_at=NOON, execution_state=b"12345"),),
    graph=Append(nodes=(noted("n"), noted("m"))),
    checkpoint=CheckpointDraft(components={"a": b"1234567890", "b": BlobRef("0" * 64)}),
    usage=(used("turn", 1),),
)


def test_rows_beyond_the_budget_are_refused() -> None:
    """Nodes, frames, components and usage count; the bound itself is allowed."""
    prepared(FULL, budget=CommitBudget(max_rows=7))
    with pytest.raises(CommitTooLarge, match="holds 7 rows; this storage accepts at most 6") as caught:
        prepared(FULL, budget=CommitBudget(max_rows=6))
    assert (caught.value.measure, caught.value.actual, caught.value.limit) == ("rows", 7, 6)


def test_bytes_beyond_the_budget_are_refused() -> None:
    """Bodies, configuration, state and the plain bytes of every blob count; the bound itself is allowed."""
    node = len(b'{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":null}}')
    frame = len(b'{"frame_id":"f","created_at":"2025-06-01T12:00:00Z","execution_state_ref":""}') + 64
    size = 2 * node + frame + 5 + 10 + len(b"{}") + len(b"{}")
    prepared(FULL, budget=CommitBudget(max_bytes=size))
    with pytest.raises(CommitTooLarge) as caught:
        prepared(FULL, budget=CommitBudget(max_bytes=size - 1))
    assert (caught.value.measure, caught.value.actual, caught.value.limit) == ("bytes", size, size - 1)


def test_the_budget_counts_bytes_not_characters() -> None:
    """Text outside ASCII counts with its encoded size."""
    node = len(
        '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":"😀"}}'.encode()
    )
    with pytest.raises(CommitTooLarge) as caught:
        prepared(appending(noted("n", body="😀")), budget=CommitBudget(max_bytes=1))
    assert caught.value.actual == node + len(b"{}") + len(b"{}")


def test_compression_does_not_stretch_the_budget() -> None:
    """Bytes count at their size before compression."""
    given = commit(checkpoint=CheckpointDraft(components={"a": b"a" * 10_000}))
    with pytest.raises(CommitTooLarge):
        prepared(given, compression=Compression.COMPACT, budget=CommitBudget(max_bytes=9_999))


def test_what_a_commit_leaves_of_checkpoints() -> None:
    """With one revision kept there is one checkpoint; a frame counts even if it has no execution state."""
    component = CheckpointDraft(turn_state=TurnState(), components={"tool_state": b"tools"})
    framed = commit(frames=(AgentFrame(frame_id="f", created_at=NOON),), current_frame_id="f")
    assert prepared(commit()).leaves_one_checkpoint
    assert prepared(commit(checkpoint=component)).leaves_one_checkpoint
    assert not prepared(framed).leaves_one_checkpoint


@pytest.mark.parametrize("keep", [2, None])
def test_a_commit_that_keeps_others_leaves_any_checkpoints(keep: int | None) -> None:
    """Neither the number of checkpoints nor their contents are known then."""
    assert not prepared(commit(), keep=keep).leaves_one_checkpoint


def test_which_commits_are_brief() -> None:
    """Up to 64 rows and 256 KiB; a graph that is replaced may have any size."""
    empty = len("{}") + len("{}")
    assert prepared(commit()).is_brief
    assert prepared(commit(graph=Append(nodes=tuple(noted(f"n{number}") for number in range(64))))).is_brief
    assert not prepared(commit(graph=Append(nodes=tuple(noted(f"n{number}") for number in range(65))))).is_brief
    assert not prepared(commit(graph=ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=0))).is_brief
    for size, is_brief in ((262_144 - empty, True), (262_145 - empty, False)):
        state = CheckpointDraft(turn_state=TurnState(), components={"tool_state": b"x" * size})
        assert prepared(commit(checkpoint=state), compression=Compression.LOW_LATENCY).is_brief is is_brief


@pytest.mark.parametrize(("keep", "floor"), [(None, 0), (0, 0), (1, 8), (3, 6)])
def test_the_retention_of_a_session_wins(keep: int | None, floor: int) -> None:
    """A commit to a session with a retention of its own drops by that; without one, by that of the storage."""
    assert retained(prepared(replace(commit(), expected_revision=7), keep=None), keep).retention_floor == floor
