"""A pytest plugin: the suites of the SDK get the adapter wherever they ask for a SQLite session.

On PostgreSQL, a process has one storage, and the ids of sessions begin with what stands for their file.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path
from typing import Any

import agents
import agents.memory
import agents.memory.sqlite_session
from suite_urls import url_of

import lash.sync
from lash.adapters.openai_agents import LashSession

_numbers = itertools.count()
_is_on_postgres = "LASH_ADAPTERS_POSTGRES" in os.environ
_postgres_url = url_of("sessions")
if _is_on_postgres:
    # Some tests wait for two seconds at most: creating the tables is not part of that.
    lash.sync.shared(_postgres_url).counts()


class SQLiteSession(LashSession):
    """The adapter with the arguments of the SDK's own class. Each session in memory is alone, as it is there."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,  # noqa: ANN401 (what the SDK's class takes)
    ) -> None:
        super().__init__(session_id, _url(str(db_path)), session_settings=session_settings)
        self.db_path = db_path
        self._name = f"{_prefix(str(db_path))}{self._name}"


def _url(path: str) -> str:
    if _is_on_postgres:
        return _postgres_url
    return "sqlite://" if path == ":memory:" else f"sqlite:///{Path(path).absolute()}"


def _prefix(path: str) -> str:
    if path == ":memory:":
        return f"{next(_numbers)}:"
    return f"{hashlib.blake2b(path.encode(), digest_size=8).hexdigest()}:" if _is_on_postgres else ""


agents.SQLiteSession = SQLiteSession
agents.memory.SQLiteSession = SQLiteSession
agents.memory.sqlite_session.SQLiteSession = SQLiteSession
