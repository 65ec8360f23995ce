"""What processes did on one storage: recorded as they run, read back, and paired into operations.

Every line is one entry: a process begins an act (``invoke``) or learns how it ended (``ok``, ``fail`` or ``unknown``).
The times are of the machine's monotonic clock, which all its processes share. A killed process leaves its last
act without an end; that act may or may not have happened.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec


class State(enum.StrEnum):
    """How far an act has come."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    """It was refused, and changed nothing."""
    UNKNOWN = "unknown"
    """It is unknown whether it happened."""


class _Act(msgspec.Struct, frozen=True, kw_only=True, tag_field="did"):
    """The request; the fields with a default are the result."""


ANY: Final = -1
"""The expected revision of an append: it takes any, and its leaf."""


class CommitAct(_Act, frozen=True, kw_only=True, tag="commit"):
    """Publish a head: ``nodes`` after the leaf that was read, for the consumed inputs.

    Without nodes the leaf stays. A turn may be tried several times, by several processes; a result with
    another revision than ``expected`` + 1 means that an earlier try succeeded.
    """

    session: str
    turn: str
    expected: int
    seen_leaf: str | None = None
    nodes: tuple[str, ...]
    consumed: tuple[str, ...] = ()
    fencing: int | None = None
    revision: int | None = None
    actual: int | None = None
    """The revision that a conflict named."""


class ReadAct(_Act, frozen=True, kw_only=True, tag="read"):
    """Read the head; revision 0 and no leaf before the first commit."""

    session: str
    revision: int = 0
    leaf: str | None = None


class EnqueueAct(_Act, frozen=True, kw_only=True, tag="enqueue"):
    session: str
    key: str
    created: bool | None = None


class AcquireAct(_Act, frozen=True, kw_only=True, tag="acquire"):
    """Take the lease of a session (``session:ID``) or of a process (``process:ID``)."""

    subject: str
    fencing: int = 0
    token: str = ""


class FencedAct(_Act, frozen=True, kw_only=True, tag="fenced"):
    """Any other call that needs a lease.

    ``outcome`` is the end of a process. Repeating a stored outcome writes nothing and needs no lease.
    """

    subject: str
    fencing: int
    what: str
    outcome: str | None = None


class OfferAct(_Act, frozen=True, kw_only=True, tag="offer"):
    """Offer a value for something that is set once: an effect, a wait, an occurrence; without a value, only read.

    ``lasting`` is false for values that are deleted once they are no longer needed.
    """

    cell: str
    value: str | None = None
    lasting: bool = True
    standing: str | None = None
    won: bool | None = None


class AppendAct(_Act, frozen=True, kw_only=True, tag="append"):
    process: str
    payload: str
    sequence: int | None = None


class CountAct(_Act, frozen=True, kw_only=True, tag="count"):
    """Add one to a record of this version; 0 is the version of no record."""

    record: str
    expected: int
    actual: int | None = None
    """The version that a conflict named."""


Act: TypeAlias = CommitAct | ReadAct | EnqueueAct | AcquireAct | FencedAct | OfferAct | AppendAct | CountAct


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a history."""

    process: str
    number: int
    at: int
    state: State
    act: Act


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An act from its start to its end; ``end`` is None where no process learned of it."""

    process: str
    start: int
    end: int | None
    state: State
    act: Act

    def ended_before(self, other: Operation) -> bool:
        """Return whether this ended before the other began."""
        return self.end is not None and self.end < other.start


class Recorder:
    """Writes the history of one process; written lines survive its kill."""

    def __init__(self, path: Path, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._process = process
        self._number = 0

    def invoke(self, act: Act) -> int:
        """Record the start of an act, and return its number."""
        self._number += 1
        self._write(self._number, State.INVOKE, act)
        return self._number

    def end(self, number: int, state: State, act: Act) -> None:
        """Record how an act ended, with its result."""
        self._write(number, state, act)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, number: int, state: State, act: Act) -> None:
        entry = Entry(process=self._process, number=number, at=time.monotonic_ns(), state=state, act=act)
        os.write(self._file, msgspec.json.encode(entry) + b"\n")


def read_history(paths: Iterable[Path]) -> list[Operation]:
    """Return the operations of all files, by start; a last line that a kill truncated is left out."""
    decoder = msgspec.json.Decoder(Entry)
    lines = [line for path in paths for line in path.read_bytes().splitlines(keepends=True)]
    return paired(decoder.decode(line) for line in lines if line.endswith(b"\n"))


def paired(entries: Iterable[Entry]) -> list[Operation]:
    """Pair starts and ends into operations."""
    begun: dict[tuple[str, int], Entry] = {}
    ended: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        (begun if entry.state is State.INVOKE else ended)[entry.process, entry.number] = entry
    if lone := ended.keys() - begun.keys():
        raise ValueError(f"acts that ended and never began: {sorted(lone)[:3]}")
    return sorted(
        (_operation(entry, ended.get(name)) for name, entry in begun.items()), key=lambda operation: operation.start
    )


def _operation(first: Entry, last: Entry | None) -> Operation:
    if last is None or last.state is State.UNKNOWN:
        return Operation(process=first.process, start=first.at, end=None, state=State.UNKNOWN, act=first.act)
    return Operation(process=first.process, start=first.at, end=last.at, state=last.state, act=last.act)
