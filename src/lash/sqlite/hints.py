"""Hints on SQLite: inside a storage at once; across storages and processes by datagrams, marks and polling the file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Final

from lash.backend.hints import LocalHints, LocalListener, hint_about
from lash.backend.notification import BEAT, Notification, for_duty, parse, parse_assigned
from lash.base.ids import new_id
from lash.errors import LashError
from lash.sqlite.dispatch import Dispatcher
from lash.sqlite.engine.database import Database
from lash.sqlite.file_watch import FileListener, FileWatch
from lash.sqlite.wake import WakeSocket, open_wake_directory
from lash.sqlite.write_marks import open_write_marks
from lash.stores.hints import ANYTHING, NO_TAGS, Hint

_SEND_EVERY_S: Final = 0.005
"""At most 200 datagrams a second leave a storage for each that listens."""
_SEND_LATER_S: Final = 0.01
"""How long a write may go unannounced, to share a datagram with the hint that mostly follows."""
_LINGER_S: Final = 30.0
"""How long the socket is kept after the last listener: a caller that asked once often asks again."""
_TO_ALL: Final = "all"
"""The first word of a datagram to all listeners; a datagram to one worker has another."""
_WRITTEN: Final = Notification(Hint(processes=NO_TAGS, ended=NO_TAGS), work=False)
"""The file was written, and no hint is about it."""


class SQLiteHints:
    """The hints of one SQLite storage; the contract is `lash.stores.hints.Hints`.

    A storage that listens has a socket. Datagrams with hints go to the callers that wait and to the duty workers; work
    that a hint names is assigned to one worker. Every write is announced within some milliseconds. While a task waits,
    one timer polls the file: a change by a process that cannot send datagrams here gives a hint about anything. Where
    there are no sockets, every change does so.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hints = LocalHints(on_idle=self._note_idle)
        self._name = new_id()
        self._directory = open_wake_directory(database.path)
        self._marks = open_write_marks(database.path, self._name if self._directory is None else self._directory.group)
        self._file = FileWatch(database, self._marks)
        self._dispatcher = None if self._directory is None else Dispatcher(database, self._directory, self._name)
        self._socket: WakeSocket | None = None
        self._gets_all = False
        self._unsent: Notification | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._worker_id: str | None = None
        self._duty = True
        self._is_working = False
        self.is_receiving = True
        if self._marks is not None:
            database.on_write = self._note_write

    @property
    def channel(self) -> str | None:
        """The name of the socket."""
        return None if self._socket is None else self._socket.name

    def listen(self, *, everything: bool = False, work: bool = False, by_session: bool = False) -> LocalListener:
        self._open_socket()
        listener = FileListener(self._hints, self._file, everything=everything, work=work, by_session=by_session)
        self._hints.add(listener)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._listen_as_needed()
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
        # A worker polls after it has committed.
        may_be_ready = (session_id, None if self._is_working else changed)
        sessions = frozenset(each for each in may_be_ready if work and each is not None)
        processes = frozenset((process_id,)) if work and process and process_id is not None else NO_TAGS
        unnamed = work and (timed or (process_id is None if process else session_id is None and changed is None))
        self._add(Notification(hint, work, unnamed, sessions, processes), later=later)

    def serve(self, worker_id: str | None, *, duty: bool = False, draining: bool = False) -> None:
        self._worker_id, self._duty = worker_id, duty or worker_id is None
        self._is_working = worker_id is not None and not draining
        self._file.is_for_workers = self._duty or not self._is_in_reach()
        self._listen_as_needed()

    async def pass_on(self, sessions: Collection[str], processes: Collection[str], *, is_full: bool = False) -> None:
        passed = Notification(Hint(), True, False, frozenset(sessions), frozenset(processes))
        if is_full and self._dispatcher is not None and self._worker_id is not None:
            with contextlib.suppress(LashError):
                await self._dispatcher.mark_full(self._worker_id)
        self._dispatch(passed, preferred=None, excluded=self._worker_id)

    async def suspect(self, workers: Collection[str]) -> None:
        if self._dispatcher is not None:
            with contextlib.suppress(LashError):
                await self._dispatcher.suspect(workers)

    def greet(self) -> None:
        if self._directory is not None:
            self._directory.send_to_all(f"{_TO_ALL} {BEAT}", self.channel)

    async def close(self) -> None:
        if self._unsent is not None:
            # Short programs write and close at once; the other storages should still get the hint.
            with contextlib.suppress(LashError):
                self._send()
        self._hints.close()
        self._database.on_write = None
        for timer in (self._timer, self._idle):
            if timer is not None:
                timer.cancel()
        self._close_socket()

    def _add(self, notification: Notification, *, later: bool) -> None:
        """Send a notification, together with others of some milliseconds."""
        if self._marks is None:
            return
        self._unsent = notification if self._unsent is None else self._unsent.merged(notification)
        loop = asyncio.get_running_loop()
        at = loop.time() + _SEND_LATER_S if later else max(loop.time(), self._sent_at + _SEND_EVERY_S)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._send)

    def _send(self) -> None:
        self._timer = None
        unsent, self._unsent = self._unsent, None
        if unsent is None or self._marks is None:
            return
        self._sent_at = asyncio.get_running_loop().time()
        self._marks.add()
        if self._directory is not None and self._directory.has_others(self.channel):
            self._dispatch(unsent, preferred=self._worker_id, excluded=None)

    def _dispatch(self, unsent: Notification, *, preferred: str | None, excluded: str | None) -> None:
        """Assign the work that a notification names, and send it to all that listen."""
        if self._directory is None or self._dispatcher is None:
            return
        dispatched = NO_TAGS
        if unsent.sessions or unsent.processes:
            try:
                dispatched, is_whole = self._dispatcher.assign(
                    unsent, self.channel, preferred=preferred, excluded=excluded
                )
            except LashError:
                is_whole = False
            if not is_whole and excluded is None:
                unsent = unsent._replace(unnamed=True)
        text = ""
        if unsent.work or unsent.hint.is_news:
            text = f"{unsent.text} {','.join(sorted(dispatched)) or '-'}"
        self._directory.send_to_all(f"{_TO_ALL} {text}", self.channel)

    def _note_write(self) -> None:
        """Announce and mark a write of this storage, unless a hint about it goes out first."""
        self._file.note_announced()
        if self._unsent is None:
            self._add(_WRITTEN, later=True)

    def _open_socket(self) -> None:
        if self._socket is None and self._directory is not None:
            self._socket = self._directory.open_socket(self._receive)
            self._gets_all = False
            self._file.is_announced = self._socket is not None

    def _close_socket(self) -> None:
        self._idle = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._file.is_announced = False

    def _listen_as_needed(self) -> None:
        """Get the datagrams to all listeners if a caller or a duty worker listens here."""
        is_needed = self._hints.has_others or (self._duty and self._hints.has_workers)
        if is_needed != self._gets_all and self._socket is not None:
            self._gets_all = is_needed
            self._socket.get_all(wanted=is_needed)

    def _is_in_reach(self) -> bool:
        """Return whether the workers of this file can send datagrams to each other."""
        try:
            return self._dispatcher is not None and self._dispatcher.reaches_all(self.channel)
        except LashError:
            return False

    def _note_idle(self) -> None:
        """Close the socket after a while without listeners."""
        if self._socket is not None:
            self._idle = asyncio.get_running_loop().call_later(_LINGER_S, self._close_socket)

    def _receive(self, texts: Sequence[str] | None) -> None:
        self._file.note_announced()
        if texts is None:
            self._hints.give(ANYTHING)
            return
        for text in texts:
            sender, _, rest = text.partition(" ")
            if sender != _TO_ALL:
                hint, _rows = parse_assigned(rest)
                self._hints.give_workers(hint)
            elif rest:
                self._receive_common(parse(rest))

    def _receive_common(self, received: Notification) -> None:
        if self._worker_id is None:
            self._hints.give(received.hint, work=received.work)
            return
        self._hints.give_others(received.hint)
        if self._duty:
            self._hints.give_workers(for_duty(received))
