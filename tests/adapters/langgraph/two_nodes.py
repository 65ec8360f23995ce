"""A graph of two nodes that leave a file for each run; the second waits for a file named ``go``."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from lash.adapters.langgraph import LashSaver


class Log(TypedDict):
    lines: Annotated[list[str], operator.add]


def graph(url: str, directory: str) -> Any:  # noqa: ANN401 (a compiled graph)
    """Return the graph, compiled with a saver on the URL."""
    marks = Path(directory)

    def mark(name: str) -> None:
        count = len(list(marks.glob(f"{name}.*")))
        (marks / f"{name}.{count + 1}").touch()

    async def first(_: Log) -> dict[str, Any]:
        mark("first")
        return {"lines": ["first"]}

    async def second(_: Log) -> dict[str, Any]:
        mark("second")
        while not (marks / "go").exists():  # noqa: ASYNC110 (a file has no event)
            await asyncio.sleep(0.05)
        return {"lines": ["second"]}

    builder = StateGraph(Log)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile(checkpointer=LashSaver(url))
