"""The repository answers as Strands' own sessions in files do, over long series of random calls."""

from __future__ import annotations

import copy
import inspect
import random
from pathlib import Path
from typing import Any

import pytest
from strands.session.file_session_manager import FileSessionManager
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from lash.adapters.strands import LashSessionRepository

_CALLS = 200
_TEXTS = ("", "text", "ö\n\t", "x" * 3000)


class _Team:
    """What a repository needs of a graph or a swarm."""

    def __init__(self, team_id: str, state: dict[str, Any]) -> None:
        self.id = team_id
        self._state = state

    def serialize_state(self) -> dict[str, Any]:
        return self._state


class _Calls:
    """Random calls of two repositories; every answer of ours, and what it does to its arguments, must be theirs.

    Files overwrite an agent or a message that is created twice, and accept them in a session that does not exist;
    ours refuses both, so these calls are left out.
    """

    def __init__(self, seed: int, ours: SessionRepository, theirs: SessionRepository) -> None:
        self._random = random.Random(seed)
        self._repositories = (ours, theirs)
        self._agents: dict[str, dict[str, set[int]]] = {}
        """The numbers of the messages, by session and agent."""
        self._time = 0

    def run(self, calls: int) -> None:
        ways = [self._session, self._session, self._delete, self._create_agent, self._update_agent, self._team]
        ways += [self._create_message] * 6 + [self._update_message] * 2 + [self._read] * 2 + [self._list] * 3
        for _ in range(calls):
            self._time += 1
            self._random.choice(ways)()

    def _same(self, name: str, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 (passed on)
        answers = []
        for repository in self._repositories:
            given, method = copy.deepcopy(arguments), getattr(repository, name)
            try:
                # Strands' managers name the arguments.
                answer = method(**dict(zip(inspect.signature(method).parameters, given, strict=False)), **options)
            except SessionException:
                answers.append(("refused", None))
            else:
                answers.append((answer, [each for each in given if not isinstance(each, _Team)]))
        assert answers[0] == answers[1], (name, arguments, options)

    def _session(self) -> None:
        session_id = self._session_id()
        if self._random.random() < 0.5:
            self._same("read_session", session_id)
            return
        self._same("create_session", Session(session_id, SessionType.AGENT, created_at=self._now(), updated_at="u"))
        self._agents.setdefault(session_id, {})

    def _delete(self) -> None:
        if self._random.random() < 0.2:
            session_id = self._session_id()
            self._same("delete_session", session_id)
            self._agents.pop(session_id, None)

    def _create_agent(self) -> None:
        session_id, agent = self._session_id(), self._agent()
        agents = self._agents.get(session_id)
        if agents is not None and agent.agent_id not in agents:
            agents[agent.agent_id] = set()
            self._same("create_agent", session_id, agent)

    def _update_agent(self) -> None:
        session_id, agent = self._session_id(), self._agent()
        self._same("update_agent", session_id, agent)
        self._same("read_agent", session_id, agent.agent_id)

    def _create_message(self) -> None:
        session_id, agent_id = self._known()
        taken = self._agents.get(session_id, {}).get(agent_id)
        number = self._random.choice((len(taken or ()), self._random.randrange(50)))
        if taken is not None and number not in taken:
            taken.add(number)
            self._same("create_message", session_id, agent_id, self._message(number))

    def _update_message(self) -> None:
        session_id, agent_id = self._known()
        self._same("update_message", session_id, agent_id, self._message(self._number(session_id, agent_id)))

    def _read(self) -> None:
        session_id, agent_id = self._known()
        self._same("read_agent", session_id, agent_id)
        self._same("read_message", session_id, agent_id, self._number(session_id, agent_id))

    def _list(self) -> None:
        session_id, agent_id = self._known()
        if agent_id in self._agents.get(session_id, {}):
            limit, offset = self._random.choice((None, 0, 1, 3, 99)), self._random.choice((0, 0, 1, 4, 99))
            self._same("list_messages", session_id, agent_id, limit=limit, offset=offset)

    def _team(self) -> None:
        session_id, team = self._session_id(), _Team(self._random.choice("mn"), {"n": [self._time, None]})
        if session_id in self._agents:
            self._same(self._random.choice(("create_multi_agent", "update_multi_agent")), session_id, team)
        self._same("read_multi_agent", session_id, team.id)

    def _session_id(self) -> str:
        return self._random.choice(("s", "t", "ö t"))

    def _known(self) -> tuple[str, str]:
        return self._session_id(), self._random.choice("ab")

    def _number(self, session_id: str, agent_id: str) -> int:
        taken = sorted(self._agents.get(session_id, {}).get(agent_id, ()))
        return self._random.choice((*taken, 7))

    def _agent(self) -> SessionAgent:
        state = {"text": self._random.choice(_TEXTS), "n": [2**70, None]}
        return SessionAgent(
            self._random.choice("ab"), state, {"removed_message_count": 0}, created_at=self._now(), updated_at="u"
        )

    def _message(self, number: int) -> SessionMessage:
        text: dict[str, Any] = {"role": "user", "content": [{"text": self._random.choice(_TEXTS)}]}
        redacted: Any = self._random.choice((None, {"role": "user", "content": [{"text": "redacted"}]}))
        message: Any = self._random.choice(
            (
                text,
                {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {"b": b"\0"}}}]},
            )
        )
        return SessionMessage(message, number, redacted, created_at=self._now(), updated_at="u")

    def _now(self) -> str:
        return f"2026-01-01T00:00:00.{self._time:06}+00:00"


@pytest.mark.parametrize("seed", range(3))
def test_sessions(url: str, tmp_path: Path, seed: int) -> None:
    """Creations, reads, updates, redactions, pages, deletions, states of graphs, and all of what is missing."""
    files = FileSessionManager(session_id="manager", storage_dir=str(tmp_path / "files"))
    _Calls(seed, LashSessionRepository(url), files).run(_CALLS)
