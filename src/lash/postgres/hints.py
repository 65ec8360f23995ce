"""Hints on PostgreSQL: inside a storage at once; across storages and processes by LISTEN and NOTIFY."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import Collection, Coroutine
from typing import Final

import msgspec

from lash.backend.hints import LocalHints, LocalListener, hint_about
from lash.backend.notification import BEAT, Notification, for_duty, parse, parse_assigned
from lash.base.backoff import backoff
from lash.base.ids import new_id
from lash.errors import ConfigError, LashError
from lash.plan.worker import LATE_BEATS
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database
from lash.postgres.engine.errors import DRIVER_ERRORS, FailurePhase, is_server_full
from lash.postgres.engine.relay import Listening, listen_shared
from lash.postgres.epoch import check_epoch
from lash.stores.hints import ANYTHING, NO_TAGS, NOTHING_ASSIGNED, Hint

_LOG: Final = logging.getLogger("lash.postgres")
_SEND_EVERY_S: Final = 0.005
"""At most 200 notifications a second leave a storage; each one wakes callers and duty workers of the schema."""
_SEND_LATER_S: Final = 0.1
"""How long a hint that no task is known to wait for may be held back, to share a notification with the next."""
_FIRST_PAUSE_S: Final = 0.1
"""The first pause after the listening connection was lost or refused."""
_FULL_TRIES: Final = 5
"""A server without a free connection is reported after so many attempts: pools that start together soon close some."""
_LONGEST_PAUSE_S: Final = 30.0
"""A server that stays away is tried twice a minute."""
_CLOSE_LIMIT_S: Final = 2.0
"""How long closing waits for a connection or a notification that the server does not answer."""
_PROBE_LIMIT_S: Final = 5.0
"""How long a test notification may take; it usually takes milliseconds."""
_LINGER_S: Final = 30.0
"""How long the connection is kept after the last listener: a caller that asked once often asks again."""
_NO_WORKER: Final = ""


class PostgresHints:
    """The hints of one PostgreSQL storage; the contract is `lash.stores.hints.Hints`.

    A notification follows a write once it is committed; the writes of 5 ms share one. It goes to the callers that wait
    and to the duty workers. Work that it names is assigned to one worker, on a channel that only this worker listens
    to. Receiving takes one connection beside the pool, shared by all listeners: it opens at the first wait, reopens
    when it was lost, and closes half a minute after the last listener. Behind a pooler in transaction mode, and on a
    pool of the caller, it needs ``listen_url``. Without it, or where the server refuses LISTEN, a waiting task sees the
    writes of other storages at its next poll.
    """

    def __init__(self, database: Database, cache: ProcessCache) -> None:
        self._database = database
        self._cache = cache
        self._channel = channel_of(database.options.schema)
        self._name = new_id()
        self._hints = LocalHints(on_idle=self._note_idle)
        self._unsent: Notification | None = None
        self._sending: asyncio.Task[None] | None = None
        self._send_at: float | None = None
        """When the event loop's clock lets what is unsent be sent; None if nothing is."""
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._connected_once = False
        self._closed = False
        self._own_channel = f"lash_{secrets.token_hex(16)}"
        self._listened: set[str] = set()
        self._needs = asyncio.Event()
        self._idle: asyncio.TimerHandle | None = None
        self._worker_id: str | None = None
        self._duty = True

    @property
    def is_receiving(self) -> bool:
        return bool(self._listened)

    @property
    def channel(self) -> str | None:
        """The channel of this storage alone. Its name is a secret of the registry, so it may name sessions."""
        return self._own_channel if self._own_channel in self._listened else None

    def listen(self, *, everything: bool = False, work: bool = False, by_session: bool = False) -> LocalListener:
        listener = _ServerListener(self._hints, self, everything=everything, work=work, by_session=by_session)
        self._hints.add(listener)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._needs.set()
        return listener

    def notify(
        self,
        *,
        process: bool = True,
        work: bool = True,
        session_id: str | None = None,
        changed: str | None = None,
        process_id: str | None = None,
        ended: bool = False,
        timed: bool = False,
        later: bool = False,
    ) -> None:
        hint = hint_about(process=process, session_id=session_id, changed=changed, process_id=process_id, ended=ended)
        self._hints.give(hint, work=work)
        sessions = frozenset(each for each in (session_id, changed) if work and each is not None)
        processes = frozenset((process_id,)) if work and process and process_id is not None else NO_TAGS
        unnamed = work and (timed or (process_id is None if process else not sessions))
        self._add(Notification(hint, work, unnamed, sessions, processes), later=later)

    def serve(self, worker_id: str | None, *, duty: bool = False, draining: bool = False) -> None:  # noqa: ARG002 (the registry has it)
        self._worker_id, self._duty = worker_id, duty or worker_id is None
        self._needs.set()

    async def pass_on(self, sessions: Collection[str], processes: Collection[str], *, is_full: bool = False) -> None:
        passed = Notification(Hint(), True, False, frozenset(sessions), frozenset(processes))
        with contextlib.suppress(LashError):
            if is_full and self._worker_id is not None:
                await self._database.send_quietly("worker_full", self._worker_id)
            await self._dispatch(passed, preferred=_NO_WORKER, excluded=self._worker_id or _NO_WORKER)

    async def suspect(self, workers: Collection[str]) -> None:
        with contextlib.suppress(LashError):
            await self._database.send_quietly("notify_suspect", list(workers), self._name)

    def greet(self) -> None:
        self._add(Notification(Hint(beat=True, assigned=NOTHING_ASSIGNED), work=False), later=False)

    def _add(self, notification: Notification, *, later: bool) -> None:
        self._unsent = notification if self._unsent is None else self._unsent.merged(notification)
        now = asyncio.get_running_loop().time()
        send_at = now + _SEND_LATER_S if later else now
        if self._send_at is None or send_at < self._send_at:
            self._send_at = send_at
            self._arrange_sending(now)

    def _arrange_sending(self, now: float) -> None:
        """Send what is unsent when it is due, and no sooner than 5 ms after the last notification."""
        if self._sending is not None or self._closed or self._send_at is None:
            return
        due = max(self._send_at, self._next_at)
        if due <= now:
            self._start_sending()
        elif self._timer is None or self._timer.when() > due:
            self._stop_timer()
            self._timer = asyncio.get_running_loop().call_at(due, self._start_sending)

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
        if self._unsent is not None and self._sending is None:
            self._start_sending()
        self._stop_timer()
        if self._idle is not None:
            self._idle.cancel()
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
        self._stop_timer()
        self._sending = self._start(self._send())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None] | None:
        if self._closed:
            work.close()
            return None
        return asyncio.get_running_loop().create_task(work, name="lash-postgres-hints")

    def _note_idle(self) -> None:
        """Close the connection after a while without listeners."""
        if self._listening is not None:
            self._idle = asyncio.get_running_loop().call_later(_LINGER_S, self._stop_listening)

    def _stop_listening(self) -> None:
        self._idle = None
        task, self._listening = self._listening, None
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _send(self) -> None:
        """Send what is unsent; while the storage is closing, until nothing is."""
        loop = asyncio.get_running_loop()
        try:
            while self._unsent is not None:
                unsent, self._unsent, self._send_at = self._unsent, None, None
                # A hint that cannot be sent is lost: the other storages see the change at their next poll.
                with contextlib.suppress(LashError):
                    await self._send_one(unsent)
                if not self._closed:
                    break
        finally:
            # Also after an unexpected error: the next hint starts another task.
            self._sending = None
            now = loop.time()
            self._next_at = now + _SEND_EVERY_S
            self._arrange_sending(now)

    async def _send_one(self, unsent: Notification) -> None:
        if unsent.hint.beat:
            await self._database.send_quietly("notify_send", self._channel, f"{self._name} {BEAT}")
        if unsent.sessions or unsent.processes:
            await self._dispatch(unsent, preferred=self._worker_id or _NO_WORKER, excluded=_NO_WORKER)
        elif unsent.work or unsent.hint.is_news:
            await self._database.send_quietly("notify_send", self._channel, f"{self._name} {unsent.whole_text}")

    async def _dispatch(self, unsent: Notification, *, preferred: str, excluded: str) -> None:
        """Send a notification that names work, and let the database assign it."""
        await self._database.send_quietly(
            "notify_dispatch",
            *(self._channel, f"{self._name} {unsent.text}", _names(unsent.sessions), _names(unsent.processes)),
            *(LATE_BEATS, self._name, preferred, excluded),
        )

    async def _listen(self) -> None:
        """Listen for as long as the storage is open, on one connection after the other."""
        failures = 0
        while True:
            try:
                await self._listen_until_lost()
            except (*DRIVER_ERRORS, LashError) as error:
                failures += 1
                if failures == (_FULL_TRIES if is_server_full(error) else 1):
                    _LOG.warning("cannot receive notifications, polling instead: %s", self._listen_failure(error))
            else:
                failures = 0
            await asyncio.sleep(backoff(failures, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S))

    async def _listen_until_lost(self) -> None:
        database = self._database
        connection = await listen_shared(
            database.options,
            database.connect_to_listen,
            lambda channel: database.send_quietly("notify_send", channel, ""),
            may_serve=self._hints.has_workers,
        )
        lost = asyncio.Event()
        try:

            def note_loss(_connection: object) -> None:
                lost.set()
                self._needs.set()

            connection.add_termination_listener(note_loss)
            await self._listen_as_needed(connection)
            if self._connected_once:
                # The address may lead to another server now, with a restored copy.
                await check_epoch(self._database)
            self._connected_once = True
            # Notifications sent before this moment did not arrive; one of them may say that a worker left.
            self._hints.give(ANYTHING._replace(beat=True))
            while not lost.is_set():
                await self._needs.wait()
                if not lost.is_set() and await self._listen_as_needed(connection):
                    self._hints.give(ANYTHING)
        finally:
            self._listened.clear()
            with contextlib.suppress(*DRIVER_ERRORS):
                await connection.close(timeout=_CLOSE_LIMIT_S)

    async def _listen_as_needed(self, connection: Listening) -> bool:
        """Listen to the channels that the listeners need, and return whether that is new."""
        self._needs.clear()
        needed = {self._own_channel} if self._hints.has_workers else set[str]()
        if self._hints.has_others or (self._duty and self._hints.has_workers) or not needed:
            needed.add(self._channel)
        missing = needed - self._listened
        for channel in missing:
            await connection.add_listener(channel, self._receive)
        self._listened |= missing
        return bool(missing)

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

    def _receive(self, _connection: object, _pid: int, channel: str, message: object) -> None:
        sender, _, text = str(message).partition(" ")
        if sender == self._name:
            # The local listeners have the hint already.
            return
        if channel == self._own_channel:
            hint, rows = parse_assigned(text)
            seals = self._database.seals
            # A row that cannot be opened is read again by the claim.
            with contextlib.suppress(LashError):
                self._cache.remember_all([seals.open_row(row) for row in rows] if seals.is_active else rows)
            self._hints.give_workers(hint)
            return
        received = parse(text)
        if self._worker_id is None:
            self._hints.give(received.hint, work=received.work)
            return
        self._hints.give_others(received.hint)
        if self._duty:
            self._hints.give_workers(for_duty(received))


class _ServerListener(LocalListener):
    """A listener whose first wait starts to receive the hints of other storages."""

    def __init__(
        self, hints: LocalHints, owner: PostgresHints, *, everything: bool, work: bool, by_session: bool
    ) -> None:
        super().__init__(hints, everything=everything, work=work, by_session=by_session)
        self._owner = owner

    def begin_waiting(self) -> None:
        self._owner.connect()


def _names(ids: frozenset[str]) -> str | None:
    """Return ids as a JSON array, None without ids: the driver would inspect each element of an array."""
    return msgspec.json.encode(ids).decode() if ids else None


def channel_of(schema: str) -> str:
    """Return the name of the channel that the storages on a schema share; it needs no quoting."""
    return "lash_" + hashlib.sha256(schema.encode()).hexdigest()[:32]
