"""Sessions with content of every kind, and the state that the tests here compare."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec

import lash
from lash.model.attachment import AttachmentOwner, OwnerKind
from lash.model.causal import NodeCause
from lash.model.queue import BatchDraft, Delivery, SessionCommand, Slot, TurnInput
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.commit import Append
from lash.model.session.frame import AgentFrame, AgentFrameAssignment, ModelSpec, SessionPolicy, ToolAccess
from lash.model.session.session import ChildRelation, FullGraph, SessionConfig, SessionRead
from lash.model.session.usage import TokenUsage
from lash.stores.storage import Storage
from lash.transfer import export_session, import_session
from tests.factories.session import MOMENT, chain, commit, plugin_node, spent

VIDEO: Final = bytes(range(256)) * 4_000
"""More than one data line holds, and not text."""


@asynccontextmanager
async def opened(*urls: str) -> AsyncIterator[list[Storage]]:
    """Open storages, and close them at the end."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(await lash.open(url)) for url in urls]


async def rich_session(storage: Storage, session_id: str = "s", *, video: bytes = VIDEO) -> None:
    """Create a session with branches, a removed branch, frames, a checkpoint, usage, attachments and queued work."""
    await storage.sessions.create(
        session_id,
        name="Größe \u2603",
        model="m-1",
        cwd="/srv",
        relation=ChildRelation(parent_session_id="mother"),
        owner="ada",
        labels={"env": "prod", "ä": ""},
        metadata={"theme": ["dark", None]},
        expires_at_ms=9_000_000_000_000,
    )
    session = storage.session(session_id)
    await _attach(storage, session_id, video)
    committed = tuple(each.ref.id for each in (await storage.attachments.list(session_id)).entries)[:3]
    await session.commit(
        commit(
            0,
            *chain("a", "b", "c"),
            session_id=session_id,
            usage=(spent(3, 4, source="z"), spent(1, source="a")),
            attachments=committed,
        )
    )
    odd = plugin_node(
        "p",
        {"z": 1, "a": [1.5, -0.0, 1e300, None, True], "nul": "\0", "text": "\u2028\U0001f600", "long": "word " * 400},
        "a",
    )
    side = (*chain("x", "y", "w", after="a"), odd)
    frames = (_frame("f1"), _frame("f2", previous="f1", state=b"\xff\x00state"))
    await session.commit(
        commit(
            1,
            session_id=session_id,
            graph=Append(nodes=side, leaf_node_id="c"),
            config=SessionConfig(provider_id="example", model=ModelSpec(id="m", variant="v")),
            frames=frames,
            current_frame_id="f2",
            checkpoint=CheckpointDraft(
                turn_state=TurnState(
                    turn_index=7, token_usage=TokenUsage(input_tokens=5), protocol_turn_options={"z": 1, "b": 2}
                ),
                plugin_snapshot_revision=3,
                components={"tool_state": b"plain text", "binary": b"\xfe\xff", "empty": b"", "same": b"plain text"},
            ),
            usage=(spent(10, source="z"), spent(2, source="later")),
        )
    )
    await session.tombstone(["y"])
    for draft in batches(session_id):
        await storage.queue.enqueue(draft)


def batches(session_id: str) -> tuple[BatchDraft, ...]:
    return (
        BatchDraft(session_id=session_id, payloads=(TurnInput.of_text("first"),), source_key="key"),
        BatchDraft(
            session_id=session_id,
            payloads=(TurnInput.of_text("second"), TurnInput.of_text("third")),
            delivery=Delivery.EARLIEST_SAFE_BOUNDARY,
            slot=Slot.JOIN,
            merge_key="m",
            available_at_ms=4_102_444_800_000,
        ),
        BatchDraft(session_id=session_id, payloads=(SessionCommand(command="compact", reason="full"),)),
    )


async def exported(storage: Storage, session_id: str = "s", *, with_queue: bool = False) -> bytes:
    """Return the file of a session."""
    stream = io.BytesIO()
    await export_session(storage, session_id, stream, with_queue=with_queue)
    return stream.getvalue()


async def carried(source: Storage, target: Storage, session_id: str = "s", *, with_queue: bool = False) -> bytes:
    """Export a session, import it into another storage, and return its export from there."""
    await import_session(target, io.BytesIO(await exported(source, session_id, with_queue=with_queue)))
    return await exported(target, session_id, with_queue=with_queue)


def parsed(file: bytes) -> list[dict[str, Any]]:
    """Return the lines of a file."""
    return [json.loads(line) for line in file.splitlines()]


def comparable(file: bytes) -> list[dict[str, Any]]:
    """Return the lines of a file without the fields that may differ."""
    lines = parsed(file)
    for name in ("session_id", "revision", "updated_at_ms"):
        lines[0].pop(name, None)
    lines[-1].pop("sha256")
    return lines


async def whole(storage: Storage, session_id: str = "s") -> SessionRead:
    """Return the whole state of a session, without the numbers that belong to its storage."""
    read = await storage.session(session_id).load(FullGraph())
    assert read is not None
    head = msgspec.structs.replace(read.head, session_id="", revision=0, updated_at_ms=0)
    return msgspec.structs.replace(read, head=head, checkpoint=msgspec.structs.replace(read.checkpoint, revision=0))


async def _attach(storage: Storage, session_id: str, video: bytes) -> None:
    put = storage.attachments.put
    await put(session_id, b"plain", "text/plain", label="a note")
    await put(session_id, video, "video/mp4", width=3, height=4)
    await put(session_id, b"", "application/octet-stream")
    await put(session_id, b"\xff\xd8", "image/jpeg", owner=AttachmentOwner(kind=OwnerKind.TURN, id="t"))


def _frame(frame_id: str, *, previous: str | None = None, state: bytes | None = None) -> AgentFrame:
    return AgentFrame(
        frame_id=frame_id,
        previous_frame_id=previous,
        created_at=MOMENT,
        reason="custom",
        caused_by=NodeCause(session_id="s", node_id="a"),
        assignment=AgentFrameAssignment(
            policy=SessionPolicy(max_turns=3, prompt={"z": 1, "a": 2}),
            tool_access=ToolAccess(hidden_tools=frozenset({"rm", "dd", "shutdown", "mkfs"})),
        ),
        execution_state=state,
    )


def sealed(lines: list[dict[str, Any]]) -> bytes:
    """Return a file of these lines with valid hashes, as anyone who knows the format could write it."""
    session = [line for line in lines[1:-1] if line["kind"] not in ("data", "batch")]
    raw = [_raw(line) for line in lines[:-1]]
    end = {
        "kind": "end",
        "content": hashlib.sha256(b"".join(map(_raw, session))).hexdigest(),
        "sha256": hashlib.sha256(b"".join(raw)).hexdigest(),
    }
    return b"".join([*raw, _raw(end)])


def _raw(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
