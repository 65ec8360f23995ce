"""Strands' own agents, graphs and managers on the adapter, with a stand-in for the model."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from strands import Agent, tool
from strands.multiagent import GraphBuilder
from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.snapshot_session_manager import SnapshotSessionManager

from lash.adapters.strands import LashSessionRepository, LashStorage
from tests.adapters.strands.echoing import EchoingModel

_ROOT = Path(__file__).resolve().parents[3]


def agent_on(url: str, marks: str | None = None, **options: object) -> Agent:
    """Return an agent of the session ``s``; with a directory, its tool leaves a file there and never returns."""

    @tool
    def count() -> str:
        """Count."""
        if marks is not None:
            (Path(marks) / "in-tool").touch()
            time.sleep(600)
        agent.state.set("n", (agent.state.get("n") or 0) + 1)
        return str(agent.state.get("n"))

    manager = RepositorySessionManager(session_id="s", session_repository=LashSessionRepository(url))
    agent = Agent(
        agent_id="counter",
        model=EchoingModel(),
        tools=[count],
        session_manager=options.get("session_manager", manager),
        callback_handler=None,
    )
    return agent


def test_a_conversation_goes_on_in_another_agent(url: str) -> None:
    """Messages and state are those of the first agent, in blocking and async runs."""
    assert str(agent_on(url)("go")).strip() == "counted 1"
    again = agent_on(url)
    assert len(again.messages) == 4
    assert str(asyncio.run(again.invoke_async("go"))).strip() == "counted 2"
    restored = agent_on(url)
    assert restored.messages == again.messages
    assert restored.state.get("n") == 2
    stored = LashSessionRepository(url).list_messages("s", "counter")
    assert [each.message_id for each in stored] == list(range(8))


def test_snapshots_on_the_storage(url: str) -> None:
    """A manager of snapshots restores the agent from the storage."""
    manager = SnapshotSessionManager(session_id="snap", storage=LashStorage(url))
    assert str(agent_on(url, session_manager=manager)("go")).strip() == "counted 1"
    later = SnapshotSessionManager(session_id="snap", storage=LashStorage(url))
    restored = agent_on(url, session_manager=later)
    assert str(restored("go")).strip() == "counted 2"
    assert len(restored.messages) == 8


def test_a_graph_stores_its_state(url: str) -> None:
    """The state of a graph is restored by the next one of the same id."""

    def graph() -> object:
        builder = GraphBuilder()
        builder.add_node(Agent(agent_id="one", model=EchoingModel(), callback_handler=None), "one")
        builder.set_entry_point("one")
        builder.set_graph_id("g")
        builder.set_max_node_executions(3)
        builder.set_session_manager(
            RepositorySessionManager(session_id="team", session_repository=LashSessionRepository(url))
        )
        return builder.build()

    built = graph()
    stored = LashSessionRepository(url).read_multi_agent("team", "g")
    assert stored is not None
    assert stored["id"] == built.id == "g"  # type: ignore[attr-defined]
    graph()
    assert LashSessionRepository(url).read_multi_agent("team", "g") is not None


_RUN = """
import sys, threading
from strands.session.repository_session_manager import RepositorySessionManager
from lash.adapters.strands import LashSessionRepository
from tests.adapters.strands.test_agent import agent_on

def create():
    repository = LashSessionRepository(sys.argv[1])
    for n in range(100_000):
        RepositorySessionManager(session_id=f"s{n}", session_repository=repository)

threading.Thread(target=create).start()
agent_on(sys.argv[1], sys.argv[2])("go")
"""


def test_a_killed_process_leaves_sessions_that_go_on(url: str, tmp_path: Path) -> None:
    """The messages before a kill in a tool are there, and a session that was being created exists or does not."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
    repository = LashSessionRepository(url)
    with subprocess.Popen([sys.executable, "-c", _RUN, url, str(tmp_path)], env=environment, cwd=_ROOT) as first:
        while not (tmp_path / "in-tool").exists() or repository.read_session("s5") is None:
            assert first.poll() is None
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
    agent = agent_on(url)
    assert [each["role"] for each in agent.messages] == ["user", "assistant"]
    assert str(agent("go on")).strip() == "counted 1"
    count = 5
    while repository.read_session(f"s{count}") is not None:
        count += 1
    for n in range(count - 2, count + 2):
        RepositorySessionManager(session_id=f"s{n}", session_repository=repository)
