"""A pytest plugin: the suites of the SDK get the adapter wherever they ask for a SQLite session."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import agents
import agents.memory
import agents.memory.sqlite_session

from lash.adapters.openai_agents import LashSession

_numbers = itertools.count()


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
        path = str(db_path)
        url = "sqlite://" if path == ":memory:" else f"sqlite:///{Path(path).absolute()}"
        super().__init__(session_id, url, session_settings=session_settings)
        self.db_path = db_path
        if path == ":memory:":
            self._name = f"{next(_numbers)}:{self._name}"


agents.SQLiteSession = SQLiteSession
agents.memory.SQLiteSession = SQLiteSession
agents.memory.sqlite_session.SQLiteSession = SQLiteSession
