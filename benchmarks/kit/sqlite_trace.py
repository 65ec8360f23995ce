"""The statements that lash runs on SQLite, recorded, and run again by the bare driver and by a program in C.

Every side starts from a copy of the same file, so keys, revisions and tokens come out the same.
"""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

Value = None | int | float | str | bytes
Statement = tuple[str, tuple[Value, ...]]
Transactions = list[list[Statement]]
"""What each transaction did, without its control statements."""

_SAVEPOINTS = ("SAVEPOINT", "RELEASE")


class _Recorder:
    """Traces every statement of one connection, and keeps the ones of write transactions."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._open = False

    def __call__(self, _cursor: apsw.Cursor, statement: str, bindings: apsw.Bindings | None) -> bool:
        if statement == "BEGIN IMMEDIATE":
            self._transactions.append([])
            self._open = True
        elif statement == "COMMIT":
            self._open = False
        elif statement == "ROLLBACK":
            # The lock alone was taken, or the bodies run again.
            self._transactions.pop()
            self._open = False
        elif self._open and not statement.startswith(_SAVEPOINTS) and isinstance(bindings, tuple):
            # Mappings are used to explain a statement, not to run it.
            self._transactions[-1].append((statement, bindings))
        return True


@contextlib.contextmanager
def recording() -> Iterator[Transactions]:
    """Record the write transactions of every connection that is opened in the block."""
    transactions: Transactions = []

    def listen(connection: apsw.Connection) -> None:
        connection.exec_trace = _Recorder(transactions)

    apsw.connection_hooks.append(listen)
    try:
        yield transactions
    finally:
        apsw.connection_hooks.remove(listen)


def bare_rate(path: Path, transactions: Transactions, *, warm: int, group: int = 1) -> float:
    """Run the transactions with the driver alone, ``group`` of them in one, and return how many it did in a second."""
    connection = apsw.Connection(str(path), statementcachesize=512)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", 1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    _run(connection, transactions[:warm], group)
    begin = time.perf_counter()
    _run(connection, transactions[warm:], group)
    taken = time.perf_counter() - begin
    connection.close()
    return (len(transactions) - warm) / taken


def _run(connection: apsw.Connection, transactions: Transactions, group: int) -> None:
    execute = connection.execute
    for first in range(0, len(transactions), group):
        execute("BEGIN IMMEDIATE")
        for transaction in transactions[first : first + group]:
            for statement, bindings in transaction:
                execute(statement, bindings).fetchall()
        execute("COMMIT")


def native_rate(program: Path, path: Path, trace: Path, *, warm: int, group: int = 1) -> tuple[float, str]:
    """Run a written trace with the program in C; return its rate and the version of SQLite it was linked with."""
    command = [str(program), str(path), str(trace), str(warm), str(group)]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return float(answer["rate"]), str(answer["sqlite"])


def write_trace(path: Path, transactions: Transactions) -> None:
    """Write the transactions as ``native/replay_sqlite.c`` reads them."""
    forms: dict[tuple[str, int], int] = {}
    body = bytearray()
    for transaction in transactions:
        body += struct.pack("<I", len(transaction))
        for statement, bindings in transaction:
            form = forms.setdefault((statement, len(bindings)), len(forms))
            body += struct.pack("<I", form)
            for value in bindings:
                body += _packed(value)
    head = bytearray(struct.pack("<I", len(forms)))
    for statement, parameters in forms:
        head += _text(statement) + struct.pack("<I", parameters)
    path.write_bytes(bytes(head) + struct.pack("<I", len(transactions)) + bytes(body))


def _text(text: str) -> bytes:
    encoded = text.encode()
    # C strings end with a zero byte.
    return struct.pack("<I", len(encoded)) + encoded + b"\0"


def _packed(value: Value) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, int):
        return b"i" + struct.pack("<q", value)
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    content = value.encode() if isinstance(value, str) else value
    return (b"t" if isinstance(value, str) else b"b") + struct.pack("<I", len(content)) + content
