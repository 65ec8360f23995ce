"""Assigning work on a file: chooses a worker from the registry and sends it a datagram."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from lash.backend.hints import process_tag, session_tag, worker_tag
from lash.backend.notification import BEAT, Notification, assigned_text
from lash.plan.dispatch import ReadyWork, rank_workers
from lash.plan.worker import WorkerRow, is_late
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.wake import WakeDirectory
from lash.stores.hints import Assigned

_FRESH_S: Final = 1.0
"""How long the registry is cached: a worker announces at most once a second that it is full or free again."""


class _Piece(NamedTuple):
    """A piece of ready work."""

    work: ReadyWork
    is_process: bool

    @property
    def tag(self) -> str:
        return f"p{process_tag(self.work.id)}" if self.is_process else f"s{session_tag(self.work.id)}"


class _Facts(NamedTuple):
    """What is ready, and the time of the storage."""

    now_ms: int
    sessions: list[ReadyWork]
    processes: list[ReadyWork]


class Outcome(NamedTuple):
    """What became of the work that a notification names."""

    dispatched: frozenset[str]
    """What workers were assigned: the kind, the tag, a colon, and the tag of the worker."""
    is_whole: bool
    """Whether every piece that is ready was assigned."""


class Dispatcher:
    """Assigns work for one storage, whose datagrams begin with ``sender``."""

    def __init__(self, database: Database, directory: WakeDirectory, sender: str) -> None:
        self._database = database
        self._directory = directory
        self._sender = sender
        self._workers: list[WorkerRow] = []
        self._read_at = float("-inf")
        self._refused: set[str] = set()

    def assign(self, work: Notification, own: str | None, *, preferred: str | None, excluded: str | None) -> Outcome:
        """Send what is ready to one worker each; what the worker of this storage takes is not sent.

        Raises LashError if the file cannot be read.
        """
        facts = self._database.read(lambda reader: self._read(reader, work))
        left = [_Piece(each, False) for each in facts.sessions] + [_Piece(each, True) for each in facts.processes]
        dispatched: dict[_Piece, str] = {}
        is_whole = True
        while left:
            groups: dict[str, list[_Piece]] = {}
            for piece in left:
                ranked = rank_workers(
                    piece.work,
                    self._workers,
                    facts.now_ms,
                    is_process=piece.is_process,
                    preferred=preferred,
                    excluded=excluded,
                )
                taker = self._first_alive(ranked, own)
                if taker is None:
                    is_whole = False
                    continue
                dispatched[piece] = f"{piece.tag}:{worker_tag(taker.worker_id)}"
                if taker.channel is not None and taker.channel != own:
                    groups.setdefault(taker.channel, []).append(piece)
            # What was meant for a worker that has ended goes to the next one.
            left = [piece for channel, pieces in groups.items() for piece in self._send(channel, pieces)]
            for piece in left:
                del dispatched[piece]
        return Outcome(frozenset(dispatched.values()), is_whole)

    def _send(self, channel: str, pieces: list[_Piece]) -> list[_Piece]:
        """Assign work to the worker behind a socket; return the work if the worker has ended."""
        sessions = frozenset(each.work.id for each in pieces if not each.is_process)
        processes = frozenset(each.work.id for each in pieces if each.is_process)
        text = assigned_text(Assigned(sessions, processes))
        if self._directory.send(channel, f"{self._sender} {text}"):
            return []
        self._refused.add(channel)
        return pieces

    async def suspect(self, tags: Collection[str]) -> None:
        """Assign nothing more to the workers of these tags until their next beat, and let them beat."""

        def body(transaction: Transaction) -> list[WorkerRow]:
            rows = transaction.all(WorkerRow, "worker_all")
            found = [each for each in rows if worker_tag(each.worker_id) in tags]
            transaction.run("worker_suspect", worker_ids=json_array(each.worker_id for each in found))
            return found

        for each in await self._database.write_briefly(body):
            if each.channel is not None:
                self._directory.send(each.channel, f"{self._sender} {BEAT}")
        self._read_at = float("-inf")

    async def mark_full(self, worker_id: str) -> None:
        """Assign no further session to this worker until its next beat."""
        await self._database.write_briefly(lambda transaction: transaction.run("worker_full", worker_id=worker_id))
        self._read_at = float("-inf")

    def _first_alive(self, ranked: Iterable[WorkerRow], own: str | None) -> WorkerRow | None:
        """Return the first worker whose socket exists."""
        names = self._directory.names()
        for each in ranked:
            if each.channel == own or (each.channel in names and each.channel not in self._refused):
                return each
        return None

    def reaches_all(self, own: str | None) -> bool:
        """Return whether every live worker has a socket here: one in another container, or of another user, has none.

        Raises LashError if the file cannot be read.
        """
        now_ms = self._database.read(self._read_workers)
        names = self._directory.names()
        live = [each for each in self._workers if not is_late(each.seen_at_ms, each.beat_ms, now_ms)]
        return all(each.channel == own or each.channel in names for each in live)

    def _read_workers(self, reader: Reader) -> int:
        """Read the registry, unless it was read a moment ago, and return the time of the storage."""
        now = time.monotonic()
        if now >= self._read_at + _FRESH_S:
            self._workers, self._read_at = reader.all(WorkerRow, "worker_all"), now
            self._refused.clear()
        return reader.now_ms

    def _read(self, reader: Reader, work: Notification) -> _Facts:
        self._read_workers(reader)
        with_labels = any(each.labels is not None for each in self._workers)
        given: dict[str, SQLiteValue] = {"now_ms": reader.now_ms, "with_labels": with_labels}
        sessions, processes = list[ReadyWork](), list[ReadyWork]()
        if work.sessions:
            ids = json_array(work.sessions)
            sessions = reader.all(ReadyWork, "worker_ready_sessions", session_ids=ids, **given)
        if work.processes:
            ids = json_array(work.processes)
            processes = reader.all(ReadyWork, "worker_ready_processes", process_ids=ids, **given)
        return _Facts(reader.now_ms, sessions, processes)
