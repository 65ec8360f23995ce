"""Graphs as agents of an app."""

from __future__ import annotations

import asyncio
import operator
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

import lash
from lash.adapters.langgraph import LashSaver, ThreadRunner
from tests.adapters.langgraph.two_nodes import graph


class Log(TypedDict):
    lines: Annotated[list[str], operator.add]


def _graph(url: str, node: Any) -> Any:  # noqa: ANN401 (a compiled graph)
    builder = StateGraph(Log)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(checkpointer=LashSaver(url))


async def test_concurrent_inputs_of_a_thread_are_all_answered(url: str) -> None:
    """Eight inputs at once are eight runs, one after the other, and each sees those before it."""

    async def answer(state: Log) -> dict[str, Any]:
        return {"lines": [f"answer to {state['lines'][-1]}"]}

    async with lash.App(url) as app:
        runner = ThreadRunner(app, _graph(url, answer), name="answers")
        replies = await asyncio.gather(*(runner.ask("t", {"lines": [f"input {n}"]}) for n in range(8)))
    lines = max((reply["lines"] for reply in replies), key=len)
    assert sorted(lines[::2]) == [f"input {n}" for n in range(8)]
    assert lines[1::2] == [f"answer to {line}" for line in lines[::2]]
    assert sorted(len(reply["lines"]) for reply in replies) == [2, 4, 6, 8, 10, 12, 14, 16]


async def test_an_interrupted_graph_goes_on_with_the_next_input(url: str) -> None:
    """The interrupt is the answer to the first input, and its resumption the second input."""

    def ask_human(_: Log) -> dict[str, Any]:
        return {"lines": [f"human said {interrupt('sure?')}"]}

    async with lash.App(url) as app:
        runner = ThreadRunner(app, _graph(url, ask_human), name="asks")
        first = await runner.ask("t", {"lines": ["pay"]})
        assert [each.value for each in first["__interrupt__"]] == ["sure?"]
        second = await runner.ask("t", Command(resume="yes"))
    assert second["lines"] == ["pay", "human said yes"]


_ROOT = Path(__file__).resolve().parents[3]
_WORKER = """
import asyncio, sys
import lash
from lash.adapters.langgraph import ThreadRunner
from tests.adapters.langgraph.two_nodes import graph

async def main(url, directory):
    async with lash.App(url, options=lash.WorkerOptions(lease_ttl_s=3.0)) as app:
        runner = ThreadRunner(app, graph(url, directory), name="two")
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_run_goes_on_after_its_worker_is_killed(url: str, tmp_path: Path) -> None:
    """The node that had ended does not run again, and the input is applied once."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
    directory = tmp_path / "marks"
    directory.mkdir()
    command = [sys.executable, "-c", _WORKER, url, str(directory)]
    async with lash.App(url, worker=False) as app:
        runner = ThreadRunner(app, graph(url, str(directory)), name="two")
        asked = asyncio.create_task(runner.ask("t", {"lines": ["in"]}))
        with subprocess.Popen(command, env=environment, cwd=_ROOT) as first:  # noqa: ASYNC220 (starting it takes no time)
            while not (directory / "second.1").exists():  # noqa: ASYNC110 (a file has no event)
                await asyncio.sleep(0.05)
            first.send_signal(signal.SIGKILL)
        (directory / "go").touch()
        with subprocess.Popen(command, env=environment, cwd=_ROOT) as second:  # noqa: ASYNC220 (starting it takes no time)
            try:
                reply = await asyncio.wait_for(asked, 120)
            finally:
                second.send_signal(signal.SIGKILL)
    assert reply["lines"] == ["in", "first", "second"]
    assert sorted(path.name for path in directory.iterdir()) == ["first.1", "go", "second.1", "second.2"]
