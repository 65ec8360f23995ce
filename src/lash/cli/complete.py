"""Reads ids for the completion of a shell: in a short time, or nothing at all."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lash.cli.output import escaped
from lash.cli.url import is_postgres, sqlite_path

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from lash.cli.shell import Shell
    from lash.stores.storage import Storage

_VARIABLE: Final = "LASH_COMPLETE_S"
_PATIENCE_S: Final = 2.0
"""How long a person waits after the Tab key, unless the variable has another number of seconds."""
_END_S: Final = 1.0
"""How long closing the storage may take after that."""
_SIGNATURE: Final = b"SQLite format 3\0"

Read = Callable[["Storage"], Awaitable[Sequence[str]]]


def read_ids(shell: Shell, read: Read) -> list[CompletionItem]:
    """Return what a call reads from the storage; nothing if it fails or takes long, and write nothing.

    No database is created: a file that does not exist is not opened, and a storage of another version is not migrated.
    """
    import asyncio

    from click.shell_completion import CompletionItem

    # A call that cannot be interrupted, such as a lookup of a host, would keep the shell waiting.
    patience_s = _patience_s()
    leave = threading.Timer(patience_s + _END_S, os._exit, (0,))
    leave.daemon = True
    leave.start()
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
            if is_postgres(shell.url) or _is_database(sqlite_path(shell.url) or ""):
                found = asyncio.run(_in_time(shell, read, patience_s))
                return [CompletionItem(each) for each in found if each == escaped(each)]
    finally:
        leave.cancel()
    return []


def _patience_s() -> float:
    given = os.environ.get(_VARIABLE, "")
    return float(given) if given.isdecimal() else _PATIENCE_S


def _is_database(path: str) -> bool:
    """Return whether a file is a SQLite database; opening a storage would leave lock files beside any other file."""
    with Path(path).open("rb") as file:
        return file.read(len(_SIGNATURE)) == _SIGNATURE


async def _in_time(shell: Shell, read: Read, patience_s: float) -> Sequence[str]:
    import asyncio

    async with asyncio.timeout(patience_s), shell.storage() as storage:
        return await read(storage)
