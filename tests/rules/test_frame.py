"""Rules of agent frames: their rows, and the bytes of their execution states."""

import pytest

from lash.base.compression import BlobRef, Codec, Compression
from lash.errors import CorruptData, InvalidInput
from lash.model.session.frame import AgentFrame, FrameStatus, SessionPolicy
from lash.plan.session.frame import EncodedFrames, FrameRow, decode_frames, encode_frames
from tests.rules.kit import NOON, sha256

STATE = BlobRef(sha256(b"state"))


def text(frame_id: str, rest: str = "", more: str = "") -> str:
    """Return the stored form of a frame that was created at noon."""
    return '{"frame_id":"' + frame_id + '",' + rest + '"created_at":"2025-06-01T12:00:00Z"' + more + "}"


def frame(frame_id: str = "f", **fields: object) -> AgentFrame:
    return AgentFrame(frame_id=frame_id, created_at=NOON, **fields)  # type: ignore[arg-type]


def encoded(*frames: AgentFrame, current: str | None = None) -> EncodedFrames:
    return encode_frames(frames, current, Compression.LOW_LATENCY)


def test_frames_become_rows_in_their_order() -> None:
    """Each frame has its position and its body, without the fields at their defaults."""
    result = encoded(frame("a"), frame("b", previous_frame_id="a", status=FrameStatus.SUPERSEDED), current="b")
    assert result.rows == (
        FrameRow("a", 0, text("a")),
        FrameRow("b", 1, text("b", '"previous_frame_id":"a","status":"superseded",')),
    )
    assert (result.components, result.blobs, result.required_refs) == ({}, {}, frozenset())


def test_an_execution_state_is_stored_beside_its_frame() -> None:
    """The row has the ref; the bytes are stored once under the frame's own component key."""
    result = encoded(frame("a", execution_state=b"state"), frame("b", execution_state_ref=STATE))
    assert result.rows[0].body == text("a", more=',"execution_state_ref":"' + STATE + '"')
    assert result.components == {"frame:a": STATE, "frame:b": STATE}
    assert result.blobs == {STATE: (STATE, Codec.PLAIN, 5, b"state")}
    assert result.required_refs == frozenset()


def test_a_ref_alone_must_resolve() -> None:
    """A state given only by ref must already be stored."""
    assert encoded(frame("a", execution_state_ref=STATE)).required_refs == {STATE}


def test_empty_bytes_are_a_state() -> None:
    """Empty bytes are a state, unlike None."""
    assert encoded(frame("a", execution_state=b"")).components == {"frame:a": sha256(b"")}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("text", r"frames\[0\] must be an AgentFrame, not str"),
        (frame(""), "frame_id is blank"),
        (frame("f" * 250), r"frames\[0\]\.frame_id has 256 characters"),
        (frame(execution_state=b"x", execution_state_ref=STATE), "both as bytes and as a ref"),
        (frame(execution_state_ref="short"), r"frames\[0\]\.execution_state must be bytes or a ref"),
        (frame(execution_state=7), r"frames\[0\]\.execution_state must be bytes or a ref"),
        (frame(status="odd"), r"frames\[0\]: .*status"),
        (frame(protocol_turn_options={"a": {1}}), r"frames\[0\]\.protocol_turn_options\.a is of type set"),
    ],
)
def test_a_frame_that_cannot_be_stored_is_refused(wrong: AgentFrame, message: str) -> None:
    """The error names the frame's position and field."""
    with pytest.raises(InvalidInput, match=message):
        encoded(wrong)


def test_the_longest_frame_id_fits_with_its_prefix() -> None:
    """249 characters leave room for the key of the execution state."""
    result = encoded(frame("f" * 249, execution_state=b"x"))
    assert [len(key) for key in result.components] == [255]


def test_a_frame_id_occurs_once() -> None:
    """Two frames of one id are refused."""
    with pytest.raises(InvalidInput, match="two frames have the same frame_id"):
        encoded(frame("a"), frame("b"), frame("a"))


@pytest.mark.parametrize("frames", [(), (frame("a"),)])
def test_the_current_frame_must_be_one_of_the_frames(frames: tuple[AgentFrame, ...]) -> None:
    """A current frame that is not in the list is refused by name."""
    with pytest.raises(InvalidInput, match="current_frame_id 'b' is not one of the frames"):
        encoded(*frames, current="b")


def test_rows_are_read_as_frames() -> None:
    """The order of the rows is the order of the frames."""
    rows = [
        FrameRow("a", 0, text("a", '"reason":"odd label",')),
        FrameRow("b", 1, text("b", '"assignment":{"policy":{"autonomous":true}},')),
    ]
    first, second = decode_frames(rows)
    assert first == frame("a", reason="odd label")
    assert second.assignment.policy == SessionPolicy(autonomous=True)


def test_an_unreadable_frame_is_corrupt() -> None:
    """A damaged row is reported with the frame's id; an unknown policy key is damage."""
    with pytest.raises(CorruptData, match="frame 'a' cannot be read"):
        decode_frames([FrameRow("a", 0, '{"frame_id":"a"}')])
    with pytest.raises(CorruptData, match="frame 'b' cannot be read"):
        decode_frames([FrameRow("b", 0, text("b", '"assignment":{"policy":{"odd":1}},'))])
