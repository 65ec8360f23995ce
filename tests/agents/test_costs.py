"""What a turn with two tool calls costs the database: one record for each call of the model and of the tool."""

from __future__ import annotations

from collections import Counter

import pytest

import lash
from lash.agents import Agent, ScriptedModel, ToolCall, call

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

TURNS = 10
CALLS = 5
"""Three calls of the model, two of the tool."""
TURN = {"sqlite": 30, "postgres": 6}
"""The statements of a turn apart from its steps; four on SQLite remove the records and book the tokens."""
RECORD = {"sqlite": 3, "postgres": 1}
"""The statements of a record: on SQLite its transaction begins and ends with one each."""


class Statements(lash.Hook):
    """Keeps the names of statements."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def statement(self, name: str) -> None:
        self.names.append(name)


async def search(query: str) -> str:
    """Search for an answer."""
    return f"found {query}"


async def test_each_call_of_a_turn_is_one_record(backend_name: str, backend_url: str) -> None:
    """A turn of an agent takes the statements of a turn and one record for each call, however long its session is."""
    counted = Statements()
    script: list[ToolCall | str] = []
    for number in range(2 * TURNS):
        script += [call("search", query="first"), call("search", query="second"), f"answer {number}"]
    app = lash.App(backend_url, worker=False, hooks=[counted])
    Agent("assistant", ScriptedModel(*script), tools=[search]).declare(app)
    async with app:
        for number in range(2 * TURNS):
            if number == TURNS:
                counted.names.clear()
            await app.session("s").send(f"question {number}", key=str(number))
            await app.drain()
        names = counted.names.copy()
        messages = await app.session("s").messages()
    assert lash.text_of(messages[-1]) == f"answer {2 * TURNS - 1}"
    assert sum(name.startswith("effect_record") for name in names) == TURNS * CALLS
    unshown = _unshown(names)
    assert len(unshown) / TURNS <= TURN[backend_name] + CALLS * RECORD[backend_name], Counter(unshown)


def _unshown(names: list[str]) -> list[str]:
    """Return the statements without what shows the calls to observers; how often that is depends on the machine."""
    groups: list[list[str]] = [[]]
    is_open = False
    for name in names:
        is_open = is_open or name == "begin"
        groups[-1].append(name)
        if name == "commit" or not is_open:
            is_open = False
            groups.append([])
    left = (group for group in groups if not any(name.startswith("activity_") for name in group))
    return [name for group in left for name in group]
