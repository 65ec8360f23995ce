"""Encoding and decoding of agent frames: one row each, with the execution state as a separate blob."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from lash.base.codec import decode, encode
from lash.base.compression import BlobRef, Compression, StoredBlob
from lash.base.limits import check_identifier
from lash.errors import InvalidInput
from lash.model.session.checkpoint import FRAME_PREFIX
from lash.model.session.frame import AgentFrame
from lash.plan.sealed import FRAME
from lash.plan.session.checkpoint import add_component


class FrameRow(msgspec.Struct, frozen=True, array_like=True):
    """One frame of a session's list."""

    frame_id: str
    position: int
    body: Annotated[str, FRAME]


class EncodedFrames(msgspec.Struct, frozen=True, kw_only=True):
    """Frames ready to be written, with their bytes and refs."""

    rows: tuple[FrameRow, ...]
    components: dict[str, BlobRef]
    blobs: dict[BlobRef, StoredBlob]
    required_refs: frozenset[BlobRef]


def encode_frames(
    frames: tuple[AgentFrame, ...], current_frame_id: str | None, compression: Compression
) -> EncodedFrames:
    """Turn a session's whole list of frames into rows; the current frame must be one of them."""
    stored: dict[BlobRef, StoredBlob] = {}
    required: set[BlobRef] = set()
    components: dict[str, BlobRef] = {}
    rows: list[FrameRow] = []
    for position, frame in enumerate(frames):
        lean, ref = _without_bytes(position, frame, compression, stored, required)
        rows.append(FrameRow(lean.frame_id, position, encode(lean, AgentFrame, f"frames[{position}]")))
        if ref is not None:
            components[FRAME_PREFIX + lean.frame_id] = ref
    frame_ids = {row.frame_id for row in rows}
    if len(frame_ids) != len(rows):
        raise InvalidInput("two frames have the same frame_id")
    if current_frame_id is not None and current_frame_id not in frame_ids:
        raise InvalidInput(f"current_frame_id {current_frame_id!r:.80} is not one of the frames")
    return EncodedFrames(
        rows=tuple(rows),
        components=components,
        blobs=stored,
        required_refs=frozenset(required - stored.keys()),
    )


def decode_frames(rows: Iterable[FrameRow]) -> tuple[AgentFrame, ...]:
    """Return the frames in their order."""
    return tuple(decode(row.body, AgentFrame, f"frame {row.frame_id!r}") for row in rows)


def _without_bytes(
    position: int,
    frame: object,
    compression: Compression,
    stored: dict[BlobRef, StoredBlob],
    required: set[BlobRef],
) -> tuple[AgentFrame, BlobRef | None]:
    """Replace the execution state's bytes by their ref."""
    if not isinstance(frame, AgentFrame):
        raise InvalidInput(f"frames[{position}] must be an AgentFrame, not {type(frame).__name__}")
    what = f"frames[{position}].execution_state"
    check_identifier(f"frames[{position}].frame_id", FRAME_PREFIX + check_identifier("frame_id", frame.frame_id))
    if frame.execution_state is not None and frame.execution_state_ref is not None:
        raise InvalidInput(f"{what} is given both as bytes and as a ref")
    given = frame.execution_state if frame.execution_state is not None else frame.execution_state_ref
    if given is None:
        return frame, None
    ref = add_component(given, what, compression, stored, required)
    return msgspec.structs.replace(frame, execution_state=None, execution_state_ref=ref), ref
