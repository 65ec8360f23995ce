"""Hints on PostgreSQL: inside a storage at once; across storages and processes by LISTEN and NOTIFY."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import Coroutine
from typing import Final, NamedTuple

from lash.backend.hints import LocalHints, LocalListener, hint_about
from lash.base.backoff import backoff
from lash.base.ids import new_id
from lash.errors import ConfigError, LashError
from lash.postgres.engine.database import Database
from lash.postgres.engine.errors import DRIVER_ERRORS, FailurePhase
from lash.postgres.epoch import check_epoch
from lash.stores.hints import ANYTHING, NO_TAGS, Hint, Tags

_LOG: Final = logging.getLogger("lash.postgres")
_SEND_EVERY_S: Final = 0.005
"""At most 200 notifications a second leave a storage; each one wakes every listener of the schema."""
_SEND_LATER_S: Final = 0.02
"""How long a hint that no task is known to wait for may be held back, to share a notification with the next."""
_FIRST_PAUSE_S: Final = 0.1
"""The first pause after the listening connection was lost or refused."""
_LONGEST_PAUSE_S: Final = 30.0
"""A server that stays away is tried twice a minute."""
_CLOSE_LIMIT_S: Final = 2.0
"""How long closing waits for a connection or a notification that the server does not answer."""
_PROBE_LIMIT_S: Final = 5.0
"""How long a test notification may take; it usually takes milliseconds."""
_WORDS: Final = {(True, True): "process", (True, False): "log", (False, True): "other", (False, False): "activity"}
"""The first word of a notification: whether processes changed, and whether there may be work."""
_KINDS: Final[dict[str, tuple[bool, bool]]] = {word: kind for kind, word in _WORDS.items()}
_ANY: Final = "*"


class _Notification(NamedTuple):
    """The text of a notification: a word, the tag of the one session with work, and the tags of all sessions."""

    hint: Hint
    work: bool

    def merged(self, other: _Notification) -> _Notification:
        return _Notification(self.hint.merged(other.hint), self.work or other.work)

    @property
    def text(self) -> str:
        hint = self.hint
        word = _WORDS[hint.process, self.work]
        return f"{word} {hint.ready or ''} {_write_tags(hint.queued)} {_write_tags(hint.changed)}"

    @classmethod
    def parse(cls, text: str) -> _Notification:
        """Return what another storage sent; a text of another version is about anything."""
        parts = text.split(" ")
        if len(parts) != len(Hint._fields) or parts[0] not in _KINDS:
            return cls(ANYTHING, work=True)
        process, work = _KINDS[parts[0]]
        return cls(Hint(process, _read_tags(parts[2]), _read_tags(parts[3]), parts[1] or None), work)


class PostgresHints:
    """The hints of one PostgreSQL storage; the contract is `lash.stores.hints.Hints`.

    A notification follows a write once it is committed; the writes of 5 ms share one. Receiving them takes one
    connection beside the pool, shared by all listeners: it opens at the first wait, reopens when it was lost, and
    closes when there are no more listeners. Behind a pooler in transaction mode, and on a pool of the caller, it needs
    ``listen_url``. Without it, or where the server refuses LISTEN, a waiting task sees the writes of other storages at
    its next poll.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._channel = channel_of(database.options.schema)
        self._name = new_id()
        self._hints = LocalHints(on_idle=self._stop_listening)
        self._unsent: _Notification | None = None
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._connected_once = False
        self._closed = False
        self.is_receiving = False
        self.channel: str | None = None

    def listen(self, *, everything: bool = False, work: bool = False, by_session: bool = False) -> LocalListener:
        listener = _ServerListener(self._hints, self, everything=everything, work=work, by_session=by_session)
        self._hints.add(listener)
        return listener

    def notify(
        self,
        *,
        process: bool = True,
        work: bool = True,
        session_id: str | None = None,
        changed: str | None = None,
        later: bool = False,
    ) -> None:
        hint = hint_about(process=process, session_id=session_id, changed=changed)
        self._hints.give(hint, work=work)
        notification = _Notification(hint, work)
        self._unsent = notification if self._unsent is None else self._unsent.merged(notification)
        if later:
            if self._sending is None and self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_SEND_LATER_S, self._start_sending)
        else:
            self._start_sending()

    def connect(self) -> None:
        """Start to receive the hints of other storages, if that is possible and not done yet."""
        if self._listening is None and self._database.can_listen:
            self._listening = self._start(self._listen())

    async def probe(self) -> float | None:
        """Send a notification and return after how many seconds it arrived; None if lash cannot listen here.

        Raises :class:`ConfigError` if it does not arrive, and the error of a connection that cannot be opened.
        """
        if not self._database.can_listen:
            return None
        try:
            return await self._probe()
        except DRIVER_ERRORS as error:
            raise self._listen_failure(error) from error

    async def close(self) -> None:
        if self._unsent is not None:
            self._start_sending()
        self._closed = True
        self._hints.close()
        if self._sending is not None:
            # Short programs write and close at once; the other storages should still get the hint.
            await asyncio.wait({self._sending}, timeout=_CLOSE_LIMIT_S)
        tasks = self._ending | {task for task in (self._sending, self._listening) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start_sending(self) -> None:
        """Send what is unsent, unless a task does so already."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None:
            self._sending = self._start(self._send())

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None] | None:
        if self._closed:
            work.close()
            return None
        return asyncio.get_running_loop().create_task(work, name="lash-postgres-hints")

    def _stop_listening(self) -> None:
        """Close the connection, since there are no listeners."""
        task, self._listening = self._listening, None
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _send(self) -> None:
        """Send notifications until there is nothing unsent."""
        try:
            while self._unsent is not None:
                message, self._unsent = f"{self._name} {self._unsent.text}", None
                # A hint that cannot be sent is lost: the other storages see the change at their next poll.
                with contextlib.suppress(LashError):
                    await self._database.send_quietly("notify_send", self._channel, message)
                await asyncio.sleep(_SEND_EVERY_S)
        finally:
            # Also after an unexpected error: the next hint starts another task.
            self._sending = None

    async def _listen(self) -> None:
        """Listen for as long as the storage is open, on one connection after the other."""
        failures = 0
        while True:
            try:
                await self._listen_until_lost()
            except (*DRIVER_ERRORS, LashError) as error:
                failures += 1
                if failures == 1:
                    _LOG.warning("cannot receive notifications, polling instead: %s", self._listen_failure(error))
            else:
                failures = 0
            await asyncio.sleep(backoff(failures, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S))

    async def _listen_until_lost(self) -> None:
        connection = await self._database.connect_to_listen()
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _connection: lost.set())
            await connection.add_listener(self._channel, self._receive)
            if self._connected_once:
                # The address may lead to another server now, with a restored copy.
                await check_epoch(self._database)
            self._connected_once = True
            self.is_receiving = True
            # Notifications sent before this moment did not arrive.
            self._hints.give(ANYTHING)
            await lost.wait()
        finally:
            self.is_receiving = False
            with contextlib.suppress(*DRIVER_ERRORS):
                await connection.close(timeout=_CLOSE_LIMIT_S)

    async def _probe(self) -> float:
        connection = await self._database.connect_to_listen()
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        channel = f"lash_probe_{secrets.token_hex(8)}"
        try:
            await connection.add_listener(channel, lambda *_: arrived.set())
            sent_at = loop.time()
            await self._database.send_quietly("notify_send", channel, "")
            try:
                await asyncio.wait_for(arrived.wait(), _PROBE_LIMIT_S)
            except TimeoutError:
                options = self._database.options
                raise ConfigError(
                    f"a notification sent through {options.address} did not arrive at {options.listen_address}; "
                    "expected the same database of the same server there, without a pooler in transaction mode"
                ) from None
            return loop.time() - sent_at
        finally:
            with contextlib.suppress(*DRIVER_ERRORS):
                await connection.close(timeout=_CLOSE_LIMIT_S)

    def _listen_failure(self, error: BaseException) -> Exception:
        if isinstance(error, LashError):
            return error
        options = self._database.options
        return self._database.failure(error, FailurePhase.CONNECT, "listen", address=options.listen_address)

    def _receive(self, _connection: object, _pid: int, _channel: str, message: object) -> None:
        sender, _, text = str(message).partition(" ")
        if sender != self._name:
            received = _Notification.parse(text)
            self._hints.give(received.hint, work=received.work)


class _ServerListener(LocalListener):
    """A listener whose first wait starts to receive the hints of other storages."""

    def __init__(
        self, hints: LocalHints, owner: PostgresHints, *, everything: bool, work: bool, by_session: bool
    ) -> None:
        super().__init__(hints, everything=everything, work=work, by_session=by_session)
        self._owner = owner

    def begin_waiting(self) -> None:
        self._owner.connect()


def channel_of(schema: str) -> str:
    """Return the name of the channel that the storages on a schema share; it needs no quoting."""
    return "lash_" + hashlib.sha256(schema.encode()).hexdigest()[:32]


def _write_tags(tags: Tags) -> str:
    return _ANY if tags is None else ",".join(sorted(tags))


def _read_tags(text: str) -> Tags:
    if text == _ANY:
        return None
    return frozenset(text.split(",")) if text else NO_TAGS
