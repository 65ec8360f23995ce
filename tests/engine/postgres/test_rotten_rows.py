"""A stored text that rotted on the disk, and that an index reads whenever its row is written.

The server is of version 15: later ones have checksums, and would not read the page at all.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import lash
from lash.testing.postgres_server import PostgresServer
from tests.backends import run_sql
from tests.factories.session import commit, node
from tests.postgres_15 import find_postgres_15

_SOUND: Final = b'{"relation":{"kind":"root"}}'
_ROTTEN: Final = b"{'relation':{'kind':'root'}}"


def _rot(server: PostgresServer, session_id: bytes) -> None:
    """Change the relation of a session in the files of the stopped server, in all versions of its row."""
    data = Path(server.socket_url.partition("host=")[2].partition("&")[0]) / "data" / "base"
    row = re.compile(re.escape(session_id) + b".{0,60}?" + re.escape(_SOUND), re.DOTALL)
    server.stop()
    for file in (path for path in data.rglob("*") if path.is_file()):
        content = file.read_bytes()
        if row.search(content):
            file.write_bytes(row.sub(lambda found: found[0].replace(_SOUND, _ROTTEN), content))
    server.start()


async def test_a_write_names_the_session_of_a_rotten_row() -> None:
    """A commit and an append name the damaged session; a commit of another session beside it is written."""
    with PostgresServer(binaries=find_postgres_15()) as server:
        async with await lash.open(server.url) as storage:
            for session_id in ("rotten-one", "sound-one"):
                await storage.sessions.create(session_id)
                await storage.session(session_id).commit(commit(0, node("a", None), session_id=session_id))
        # The next write moves the session in an index, and PostgreSQL then reads the row for all indexes.
        run_sql(server.url, "UPDATE lash_sessions SET updated_at_ms = 1")
        _rot(server, b"rotten-one")
        async with await lash.open(server.url) as storage:
            session = storage.session("rotten-one")
            with pytest.raises(lash.CorruptData, match=r"session 'rotten-one': .*type json.*lash db check lists"):
                await session.commit(commit(1, node("b", "a"), session_id="rotten-one"))
            with pytest.raises(lash.CorruptData, match="session 'rotten-one'"):
                await session.append([node("b", None)])
            with pytest.raises(lash.CorruptData, match="relation of session 'rotten-one'"):
                await storage.sessions.list()
            await storage.session("sound-one").commit(commit(1, node("b", "a"), session_id="sound-one"))
            assert await storage.sessions.delete("rotten-one")
