"""How much room a database takes."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Final

import apsw
import asyncpg

_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_PAGE_SIZE_AT, _FRAMES_AT = 14, 16
"""Where the index of SQLite's log has the size of a page, and the number of the last valid frame."""


def stored_bytes(url: str) -> int:
    """Return the bytes on disk, after the log of SQLite was copied back or the tables of PostgreSQL were vacuumed."""
    if url.startswith("postgresql"):
        return asyncio.run(_on_postgres(url))
    return file_bytes(Path(url.removeprefix("sqlite:///")))


def file_bytes(path: Path) -> int:
    """Return the size of a SQLite file and of what lies beside it, without the memory that open connections share."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(15_000)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    beside = (each for each in path.parent.iterdir() if each.name.startswith(path.name))
    return sum(each.stat().st_size for each in beside if not each.name.endswith("-shm"))


def log_bytes(path: Path) -> int:
    """Return how many bytes of the log of an open SQLite file are in use; it is longer than that."""
    index = path.with_name(f"{path.name}-shm").read_bytes()
    (page_bytes,) = struct.unpack_from("=H", index, _PAGE_SIZE_AT)
    (frames,) = struct.unpack_from("=I", index, _FRAMES_AT)
    return _LOG_HEADER + frames * (page_bytes + _FRAME_HEADER) if frames else 0


async def _on_postgres(url: str) -> int:
    connection = await asyncpg.connect(url)
    await connection.execute("VACUUM")
    size: int = await connection.fetchval(
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c "
        "JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
    )
    await connection.close()
    return size
