"""Sessions of Strands: lash's repository and Strands' files, in the environment of the adapter."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strands.session.file_session_manager import FileSessionManager
from strands.types.content import Message
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import lash
import lash.sync
from benchmarks.peers.protocol import Answer, Question, all_turns, digest, serve
from lash.adapters.strands import LashSessionRepository

_READS = 10
_LIMIT = 20
_PLACE = {"session_id": "chat", "agent_id": "agent"}


def session(question: Question) -> Answer:
    """Store the messages of each turn and the agent after each, as the session manager does; read them at the end."""
    url, variant = question["url"], question["variant"]
    if variant == "LashSessionRepository":
        try:
            return _converse(LashSessionRepository(url), question["turns"])
        finally:
            lash.sync.shared(url).close()
    directory = Path(url.removeprefix("sqlite:///")).with_suffix(".files")
    # It creates the session itself.
    answer = _converse(FileSessionManager(session_id="chat", storage_dir=str(directory)), question["turns"])
    return answer | {"bytes": sum(each.stat().st_size for each in directory.rglob("*") if each.is_file())}


def _converse(repository: Any, turns: int) -> Answer:  # noqa: ANN401 (one of two classes)
    if repository.read_session("chat") is None:
        repository.create_session(Session(session_id="chat", session_type=SessionType.AGENT))
    agent = SessionAgent(agent_id="agent", state={}, conversation_manager_state={"removed_message_count": 0})
    repository.create_agent("chat", agent)
    add, last, whole, number = list[float](), list[float](), list[float](), 0
    for texts in all_turns([0], turns)[0]:
        for content in _messages(texts, number):
            message = SessionMessage.from_message(content, number)
            add.append(_timed(lambda message=message: _add(repository, agent, message)))
            number += 1
    for _ in range(_READS):
        last.append(_timed(lambda: repository.list_messages(**_PLACE, limit=_LIMIT, offset=number - _LIMIT)))
        whole.append(_timed(lambda: repository.list_messages(**_PLACE)))
    texts = [_text(each.message) for each in repository.list_messages(**_PLACE)]
    return {"add_ms": add, "last_ms": last, "whole_ms": whole, "digests": [digest(texts)]}


def _add(repository: Any, agent: SessionAgent, message: SessionMessage) -> None:  # noqa: ANN401 (one of two classes)
    repository.create_message(**_PLACE, session_message=message)
    repository.update_agent("chat", agent)


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def _messages(texts: dict[str, str], number: int) -> list[Message]:
    use = {"toolUseId": f"call-{number}", "name": "search", "input": {"q": texts["call"]}}
    result = {"toolUseId": f"call-{number}", "status": "success", "content": [{"text": texts["result"]}]}
    return [
        {"role": "user", "content": [{"text": texts["user"]}]},
        {"role": "assistant", "content": [{"toolUse": use}]},
        {"role": "user", "content": [{"toolResult": result}]},
        {"role": "assistant", "content": [{"text": texts["reply"]}]},
    ]


def _text(message: Message) -> str:
    content: Any = message["content"][0]
    if "toolUse" in content:
        return str(content["toolUse"]["input"]["q"])
    if "toolResult" in content:
        return str(content["toolResult"]["content"][0]["text"])
    return str(content["text"])


serve(("strands-agents",), {"session": session}, own={"lash": lash.__version__})
