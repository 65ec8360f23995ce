"""Background writer for turn activity."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from lash.base.shapes import read_json
from lash.errors import LashError, SessionDeleted, SessionNotFound
from lash.model.activity import ActivityDraft
from lash.model.value import JSON
from lash.plan.activity import encode_draft
from lash.stores.activity import ActivityStore

_PAUSE_S: Final = 0.02
"""Tokens of a model come faster than this; one write takes several."""
_SOON_ITEMS: Final = 64
"""A buffer of this size is written without waiting for the pause."""
_MAX_ITEMS: Final = 1_024
"""What one append of the store takes."""
_MAX_BYTES: Final = 1024 * 1024
"""The memory of one session's buffer while the storage is slow."""
_AT_ONCE: Final = 4
"""How many sessions are written at a time: turns need the connections too."""
_FLUSH_LIMIT_S: Final = 1.0
"""How long a turn's commit waits for its activity."""
_MAX_SILENT: Final = 1_024
"""For how many idle sessions an unreported loss is remembered."""


class ActivityWriter:
    """Buffers activity and appends it in the background, in order within each session.

    `show` never waits and never raises. A session's buffer is bounded: when the storage is slower than the turns, the
    oldest pieces are dropped, and observers see how many. A failed append is not retried, since observers might then
    see a piece twice. A writer belongs to the event loop in which it was created.
    """

    def __init__(
        self,
        store: ActivityStore,
        *,
        pause_s: float = _PAUSE_S,
        max_items: int = _MAX_ITEMS,
        max_bytes: int = _MAX_BYTES,
        on_loss: Callable[[str, int, Exception | None], None] | None = None,
    ) -> None:
        """``on_loss`` gets the session, how many pieces were lost, and the error (None: they came too fast)."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._store = store
        self._pause_s = pause_s
        self._limits = (max_items, max_bytes)
        self._on_loss = on_loss
        self._buffers: dict[str, _Buffer] = {}
        self._soon = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def show(self, session_id: str, turn_id: str, payload: JSON) -> None:
        """Show activity of a turn, from any thread; a payload that cannot be stored counts as lost."""
        error: LashError | None = None
        try:
            # Encode it now: the caller may change the payload afterwards.
            body = encode_draft(ActivityDraft(turn_id=turn_id, payload=payload))
        except LashError as refusal:
            body, error = encode_draft(ActivityDraft(turn_id=turn_id, lost=1)), refusal
        if threading.get_ident() == self._thread:
            self._take(session_id, turn_id, body, error)
            return
        # A thread may outlive the event loop.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, session_id, turn_id, body, error)

    async def flush(self, session_id: str, *, limit_s: float = _FLUSH_LIMIT_S) -> None:
        """Write the buffered activity of a session before the commit of its turn; never raises.

        Every turn ends with it, also one that fails. When the storage takes longer than the limit, the turn goes on
        and the rest follows in the background.
        """
        buffer = self._buffers.get(session_id)
        if buffer is not None:
            buffer.final = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await asyncio.shield(self._start_write(session_id, buffer))

    async def close(self) -> None:
        """Write what is left, within a second, and accept nothing more; idempotent."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await asyncio.gather(*(self.flush(session_id) for session_id in tuple(self._buffers)))
        writes = {buffer.writing for buffer in self._buffers.values() if buffer.writing is not None}
        for write in writes:
            write.cancel()
        if writes:
            await asyncio.wait(writes)
        self._buffers.clear()

    def _take(self, session_id: str, turn_id: str, body: str, error: LashError | None) -> None:
        if self._closed:
            return
        if error is not None:
            self._lose(session_id, 1, error)
        buffer = self._buffers.get(session_id)
        if buffer is None:
            buffer = self._buffers[session_id] = _Buffer(turn_id)
        dropped = buffer.add(body, *self._limits)
        if dropped:
            self._lose(session_id, dropped, None)
        if len(buffer.items) >= _SOON_ITEMS:
            self._soon.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name="lash-activity-writer")

    async def _run(self) -> None:
        """Write at once, then every few milliseconds or as soon as much has come, until nothing came meanwhile."""
        while waiting := [each for each in self._buffers.items() if each[1].items]:
            self._soon.clear()
            for begin in range(0, len(waiting), _AT_ONCE):
                await asyncio.wait([self._start_write(*each) for each in waiting[begin : begin + _AT_ONCE]])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s):
                    await self._soon.wait()
        self._task = None

    def _start_write(self, session_id: str, buffer: _Buffer) -> asyncio.Task[None]:
        """Return the one task that writes this buffer until it is empty."""
        if buffer.writing is None:
            buffer.writing = asyncio.create_task(self._write(session_id, buffer), name="lash-activity-write")
        return buffer.writing

    async def _write(self, session_id: str, buffer: _Buffer) -> None:
        try:
            while buffer.items:
                await self._append(session_id, buffer, buffer.take())
            if buffer.final and buffer.lost:
                await self._append(session_id, buffer, [buffer.mark()])
        finally:
            buffer.writing, buffer.final = None, False
            # An unreported loss is kept for the session's next turn, for a bounded number of sessions.
            is_needed = buffer.items or (buffer.lost and len(self._buffers) <= _MAX_SILENT)
            if self._buffers.get(session_id) is buffer and not is_needed:
                del self._buffers[session_id]

    async def _append(self, session_id: str, buffer: _Buffer, drafts: list[ActivityDraft]) -> None:
        try:
            await self._store.append(session_id, drafts)
        except (SessionNotFound, SessionDeleted) as error:
            # The session is gone, and its observers with it.
            buffer.lost = 0
            self._lose(session_id, len(drafts), error)
        except Exception as error:  # noqa: BLE001 (nothing that goes wrong here may harm the turn)
            shown = sum(draft.payload is not UNSET for draft in drafts)
            # Losses that these drafts reported are unreported again.
            buffer.lost += shown + sum(draft.lost for draft in drafts)
            if shown:
                self._lose(session_id, shown, error)

    def _lose(self, session_id: str, count: int, error: Exception | None) -> None:
        if self._on_loss is not None:
            self._on_loss(session_id, count, error)


class _Piece(NamedTuple):
    body: str
    size: int


class _Buffer:
    """Unwritten activity of one session; the ``lost`` pieces came before all of it.

    It is final while its turn ends: a loss is then written alone if no piece follows that could carry it.
    """

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.final = False
        self.items: deque[_Piece] = deque()
        self.size = 0
        self.lost = 0
        self.writing: asyncio.Task[None] | None = None

    def add(self, body: str, max_items: int, max_bytes: int) -> int:
        """Take an item, and return how many of the oldest were dropped for it."""
        item = _Piece(body, len(body))
        self.items.append(item)
        self.size += item.size
        dropped = 0
        while len(self.items) > max_items or (self.size > max_bytes and len(self.items) > 1):
            self.size -= self.items.popleft().size
            dropped += 1
        self.lost += dropped
        return dropped

    def take(self) -> list[ActivityDraft]:
        """Return the oldest items, at least one and as many as an append takes, marked with what was lost."""
        bodies = [self.items.popleft() for _ in range(min(len(self.items), _MAX_ITEMS))]
        self.size -= sum(item.size for item in bodies)
        drafts = [read_json(item.body, ActivityDraft) for item in bodies]
        if self.lost:
            drafts[0] = msgspec.structs.replace(drafts[0], lost=drafts[0].lost + self.lost)
            self.lost = 0
        return drafts

    def mark(self) -> ActivityDraft:
        """Return a draft that only reports the loss."""
        lost, self.lost = self.lost, 0
        return ActivityDraft(turn_id=self.turn_id, lost=lost)
