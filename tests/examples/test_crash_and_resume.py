from __future__ import annotations

import pytest

import lash
from tests.examples.conftest import Model
from tests.examples.programs import Programs
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_REQUEST = "Book me a trip to Rome: a flight, a hotel and a museum."


async def test_no_tool_is_called_twice(programs: Programs, model: Model, backend_url: str) -> None:
    """Two workers share one turn: the killed one made two bookings, the other the third, and all claims are true."""
    program = programs.run("crash_and_resume.py", "--url", backend_url)
    assert (program.process.returncode, program.errors()) == (0, "")
    bookings = [line.split() for line in program.lines if " books a " in line]
    first, second = bookings[0][1], bookings[2][1]
    assert first != second
    assert [(line[1], line[-1]) for line in bookings] == [(first, "flight"), (first, "hotel"), (second, "museum")]
    assert len([line for line in program.lines if line.startswith("true: ")]) == 5
    assert not [line for line in program.lines if line.startswith("FALSE")]

    calls = model.calls()
    assert sorted(name.rpartition(":")[2] for name in calls) == ["1", "7"]
    assert set(calls.values()) == {1}

    async with await lash.open(backend_url) as storage:
        [summary] = (await storage.sessions.list()).sessions
        read = await storage.session(summary.meta.session_id).load()
        assert read is not None
        messages = [node.entry.message for node in read.graph.nodes if isinstance(node.entry, lash.model.MessageEntry)]
    texts = [[part.content for part in message.parts] for message in messages]
    assert texts == [
        [_REQUEST],
        ['{"what": "flight"}', "booked a flight"],
        ['{"what": "hotel"}', "booked a hotel"],
        ['{"what": "museum"}', "booked a museum"],
        ["Here is what I found for you: booked a museum"],
    ]
    # The commit of the turn removed the records of its steps.
    assert await raw(backend_url, "SELECT count(*) FROM lash_effects") == [(0,)]


async def test_a_false_claim_ends_with_an_error(programs: Programs, model: Model, backend_url: str) -> None:
    """A model that books twice makes the claim about single calls false, and the exit code 1."""
    model.stop()
    flight, museum = ["book", {"what": "flight"}], ["book", {"what": "museum"}]
    model.start(
        [
            {"role": "user", "contains": "trip", "calls": [flight, flight, museum]},
            {"role": "tool", "contains": "", "text": "Done."},
        ]
    )
    programs.set_model(model.url)
    program = programs.run("crash_and_resume.py", "--url", backend_url)
    assert program.process.returncode == 1
    assert "FALSE: every tool was called once" in program.lines
