"""Hints on PostgreSQL: at once inside a storage, by LISTEN and NOTIFY across storages and processes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Coroutine
from typing import Final, NamedTuple

from lash.backend.hints import LocalHints, LocalListener, session_tag
from lash.base.ids import new_id
from lash.errors import LashError
from lash.postgres.engine.database import Database
from lash.postgres.engine.errors import DRIVER_ERRORS

_TELL_EVERY_S: Final = 0.005
_TELL_LATER_S: Final = 0.02
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0
_CLOSE_LIMIT_S: Final = 2.0
_KINDS: Final = {(True, True): "process", (True, False): "log", (False, True): "other", (False, False): "activity"}
"""The word for what was written: whether it concerns processes, and whether it concerns work."""
_TOLD: Final[dict[str, tuple[bool, bool]]] = {word: kind for kind, word in _KINDS.items()}


class _News(NamedTuple):
    """What a notification tells: whether processes or work are concerned, and the tag of the one session with work."""

    process: bool
    work: bool
    tag: str | None

    def and_also(self, other: _News) -> _News:
        same = self.tag == other.tag
        return _News(self.process or other.process, self.work or other.work, self.tag if same else None)

    @property
    def text(self) -> str:
        kind = _KINDS[self.process, self.work]
        return kind if self.tag is None else f"{kind} {self.tag}"

    @classmethod
    def of(cls, text: str) -> _News:
        kind, _, tag = text.partition(" ")
        # Another version may know more words.
        return cls(*_TOLD.get(kind, (True, True)), tag or None)


class PostgresHints:
    """The hints of one PostgreSQL storage; the contract is `lash.stores.hints.Hints`.

    Writes are told to the other storages on the schema after they were committed, all of 5 ms at once. Hearing of
    them takes a connection of its own beside the pool, one for all listeners: it is opened for the first who waits,
    again when it was lost, and closed when nobody listens any more. There is none behind a pooler in transaction
    mode, on a pool of the caller, or where the server refuses LISTEN: then those who wait see what other storages
    wrote when they next look by themselves.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._channel = channel_of(database.options.schema)
        self._name = new_id()
        self._hints = LocalHints(on_idle=self._stop_listening)
        self._untold: _News | None = None
        self._telling: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def listen(self, *, everything: bool = False, work: bool = False) -> LocalListener:
        listener = _ServerListener(self._hints, self, everything=everything, work=work)
        self._hints.add(listener)
        return listener

    def notify(
        self, *, process: bool = True, work: bool = True, session_id: str | None = None, later: bool = False
    ) -> None:
        news = _News(process, work, None if session_id is None else session_tag(session_id))
        self._hints.give(process=process, work=work, tag=news.tag)
        if self._untold is None:
            self._untold = news
        elif self._untold != news:
            self._untold = self._untold.and_also(news)
        if later:
            if self._telling is None and self._alarm is None:
                self._alarm = asyncio.get_running_loop().call_later(_TELL_LATER_S, self._begin_telling)
        else:
            self._begin_telling()

    def connect(self) -> None:
        """Begin to hear the other storages, if that is possible and not done yet."""
        if self._listening is None and self._database.can_listen:
            self._listening = self._start(self._listen())

    async def close(self) -> None:
        if self._untold is not None:
            self._begin_telling()
        self._closed = True
        self._hints.close()
        if self._telling is not None:
            # Writing and closing at once is what short programs do; the others should hear of it all the same.
            await asyncio.wait({self._telling}, timeout=_CLOSE_LIMIT_S)
        tasks = self._ending | {task for task in (self._telling, self._listening) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _begin_telling(self) -> None:
        """Tell the others what they do not know yet, unless that is being done."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._telling is None:
            self._telling = self._start(self._tell())

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None] | None:
        if self._closed:
            work.close()
            return None
        return asyncio.get_running_loop().create_task(work, name="lash-postgres-hints")

    def _stop_listening(self) -> None:
        """Let the connection go, since nobody listens."""
        task, self._listening = self._listening, None
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _tell(self) -> None:
        """Tell the others, until there was nothing to tell for a while."""
        while self._untold is not None:
            message, self._untold = f"{self._name} {self._untold.text}", None
            # A hint that cannot be sent is a hint lost: the others look by themselves soon.
            with contextlib.suppress(LashError):
                await self._database.send_quietly("notify_send", self._channel, message)
            await asyncio.sleep(_TELL_EVERY_S)
        self._telling = None

    async def _listen(self) -> None:
        """Listen for as long as the storage is open, on one connection after the other."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._listen_until_lost()
            except DRIVER_ERRORS:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(pause_s)

    async def _listen_until_lost(self) -> None:
        connection = await self._database.connect_beside_pool()
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _connection: lost.set())
            await connection.add_listener(self._channel, self._hear)
            # Nobody heard what was told before this moment.
            self._hints.give(process=True)
            await lost.wait()
        finally:
            with contextlib.suppress(*DRIVER_ERRORS):
                await connection.close(timeout=_CLOSE_LIMIT_S)

    def _hear(self, _connection: object, _pid: int, _channel: str, message: object) -> None:
        sender, _, text = str(message).partition(" ")
        if sender != self._name:
            news = _News.of(text)
            self._hints.give(process=news.process, work=news.work, tag=news.tag)


class _ServerListener(LocalListener):
    """A listener whose first wait begins to hear the other storages."""

    def __init__(self, hints: LocalHints, owner: PostgresHints, *, everything: bool, work: bool) -> None:
        super().__init__(hints, everything=everything, work=work)
        self._owner = owner

    def begin_waiting(self) -> None:
        self._owner.connect()


def channel_of(schema: str) -> str:
    """Return the name under which the storages on a schema tell each other; it fits and needs no quotes."""
    return "lash_" + hashlib.sha256(schema.encode()).hexdigest()[:32]
