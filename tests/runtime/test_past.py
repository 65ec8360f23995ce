"""Turns of long conversations: a turn reads what its agent asks for, and an agent that asks for more gets it."""

from __future__ import annotations

import contextlib

import pytest

import lash
from lash.model.queue import BatchDraft, Slot, TurnInput
from lash.model.session.message import Message
from lash.model.session.node import Node, ProtocolEntry
from lash.plan.session import session as session_plan
from lash.plan.session.node import PathRow, path_nodes
from lash.runtime.app import App
from lash.runtime.turns.end import TurnEnd
from lash.runtime.turns.history import ALL, LEAST_NODES
from lash.runtime.turns.past import Reach
from lash.runtime.turns.turn import Turn
from tests.factories.session import MOMENT, chain, commit, node
from tests.runtime.turn_bench import Bench, claim_turn, run_turn, texts


class Costs(lash.Hook):
    """Counts statements, and nodes that are decoded from rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.rows = 0

        def counting(rows: list[PathRow]) -> tuple[Node, ...]:
            self.rows += len(rows)
            return path_nodes(rows)

        monkeypatch.setattr(session_plan, "path_nodes", counting)

    def statement(self, name: str) -> None:
        self.statements.append(name)

    def take(self) -> tuple[list[str], int]:
        """Return what was counted since the last call."""
        taken = sorted(self.statements), self.rows
        self.statements, self.rows = [], 0
        return taken


async def _long(app: App, session_id: str, length: int) -> None:
    """Create a session of so many messages, named n0, n1 and so on."""
    await app.storage.sessions.create(session_id)
    nodes = chain(*(f"n{number}" for number in range(length)))
    await app.storage.session(session_id).commit(commit(0, *nodes, session_id=session_id))


async def _turn(app: App, session_id: str, text: str = "x") -> str:
    """Send a message, run its turn, and return the reply."""
    await app.session(session_id).send(text)
    assert await run_turn(app, session_id) is TurnEnd.COMMITTED
    return texts(await app.session(session_id).messages(last=1))[0][1]


async def test_a_turn_costs_the_same_at_any_length(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that asks for five messages takes the same statements and rows at 100 and at 5,000 nodes."""
    costs = Costs(monkeypatch)
    app = await bench.app(hooks=(costs,))

    @app.agent
    async def agent(turn: Turn) -> str:
        return " ".join(text for _, text in texts(turn.messages(last=5)))

    await _long(app, "warm", 10)
    await _turn(app, "warm")
    seen = []
    for length in (100, 5_000):
        name = f"of {length}"
        await _long(app, name, length)
        for turn in range(2):
            await app.session(name).send("x")
            costs.take()
            assert await run_turn(app, name) is TurnEnd.COMMITTED
            seen.append(costs.take())
            # The second turn finds the first one in memory.
            assert seen[-1][1] == (0 if turn else LEAST_NODES)
        said = [text for _, text in texts(await app.session(name).messages(last=4))]
        before = [f"n{number}" for number in range(length - 4, length)]
        first = " ".join([*before, "x"])
        assert said == ["x", first, "x", " ".join([*before[-2:], "x", first, "x"])]
    assert seen[:2] == seen[2:]


async def test_an_agent_that_asks_for_all_of_it_gets_it(bench: Bench) -> None:
    """The first such agent starts again with the whole conversation; its later turns, of any session, do not."""
    app = await bench.app()
    starts: list[str] = []
    steps: list[str] = []

    async def note(text: str) -> str:
        steps.append(text)
        return text

    @app.agent
    async def agent(turn: Turn) -> str:
        starts.append(turn.session_id)
        turn.add(f"attempt {turn.attempt}")
        turn.state["started"] = len(starts)
        await turn.step("note", note, turn.text)
        said = texts(turn.messages())
        assert said[0] == ("user", "n0")
        return f"{len(said)} {said[-1][1]}"

    await _long(app, "a", 300)
    await _long(app, "b", 200)
    assert await _turn(app, "a", "one") == "302 attempt 1"
    assert (starts, steps) == (["a", "a"], ["one"])
    assert [text for _, text in texts(await app.session("a").messages())][300:] == ["one", "attempt 1", "302 attempt 1"]
    assert await _turn(app, "a", "two") == "305 attempt 1"
    assert await _turn(app, "b", "three") == "202 attempt 1"
    assert (starts, steps) == (["a", "a", "a", "b"], ["one", "two", "three"])


async def test_nodes_that_are_no_messages_do_not_count(bench: Bench) -> None:
    """The last messages are found before any number of other nodes."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        return " ".join(text for _, text in texts(turn.messages(last=4)))

    await _long(app, "s", 20)
    entry = ProtocolEntry(plugin_id="p", payload={})
    others = [
        Node(node_id=f"p{number}", parent_node_id=f"p{number - 1}" if number else "n19", timestamp=MOMENT, entry=entry)
        for number in range(450)
    ]
    await app.storage.session("s").commit(commit(1, *others))
    assert await _turn(app, "s") == "n17 n18 n19 x"
    assert [text for _, text in texts(await app.session("s").messages(last=3))] == ["n19", "x", "n17 n18 n19 x"]


async def test_input_is_taken_again_by_an_agent_that_starts_again(bench: Bench) -> None:
    """Early input that had joined, and input that was claimed together, are in the turn once."""
    app = await bench.app()
    seen: list[list[str]] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        if not seen:
            await app.session("s").send("early", early=True)
        seen.append([text for _, text in texts(await turn.join_early_input())])
        return str(len(turn.messages()))

    await _long(app, "s", 150)
    for text in ("one", "two"):
        payloads = (TurnInput.of_text(text),)
        draft = BatchDraft(session_id="s", payloads=payloads, slot=Slot.JOIN, merge_key="m")
        await app.storage.queue.enqueue(draft)
    assert await run_turn(app, "s") is TurnEnd.COMMITTED
    assert seen == [["early"], ["early"]]
    said = [text for _, text in texts(await app.session("s").messages())]
    assert said[150:] == ["one", "two", "early", "153"]
    assert await app.session("s").pending() == ()


async def test_an_agent_that_starts_again_sees_the_same_conversation(bench: Bench) -> None:
    """What another writer commits during the turn is not part of it, before or after the agent starts again."""
    app = await bench.app()
    starts: list[int] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        starts.append(len(starts))
        if len(starts) == 1:
            await app.storage.session("s").commit(commit(1, node("other", "n149")))
        short = texts(turn.messages(last=2))
        whole = texts(turn.messages())
        assert short == whole[-2:] == [("user", "n149"), ("user", "x")]
        return str(len(whole))

    await _long(app, "s", 150)
    assert await _turn(app, "s") == "151"
    assert len(starts) == 2
    assert [text for _, text in texts(await app.session("s").messages(last=3))] == ["other", "x", "151"]


async def test_a_conversation_that_was_replaced_meanwhile(bench: Bench) -> None:
    """If the conversation was replaced during the turn, an agent that starts again sees the new one."""
    app = await bench.app()
    starts: list[int] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        starts.append(len(starts))
        if len(starts) == 1:
            graph = lash.model.ReplaceFull(nodes=chain("new", "newer"), leaf_node_id="newer", replaced_node_count=150)
            await app.storage.session("s").commit(commit(1, graph=graph))
        return " ".join(text for _, text in texts(turn.messages()))

    await _long(app, "s", 150)
    assert await _turn(app, "s") == "new newer x"


@pytest.mark.parametrize("end", ["cancel", "release", "lose"])
async def test_an_agent_that_would_start_again_can_be_stopped(bench: Bench, end: str) -> None:
    """A turn that is cancelled, released or lost when its agent asks for more does not start it again."""
    app = await bench.app()
    starts: list[int] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        starts.append(turn.attempt)
        if len(starts) == 1:
            run.cancel("enough") if end == "cancel" else run.release() if end == "release" else run.lose()
        return str(len(turn.messages()))

    await _long(app, "s", 150)
    await app.session("s").send("x")
    run = await claim_turn(app, "s")
    expected = {"cancel": TurnEnd.COMMITTED, "release": TurnEnd.RELEASED, "lose": TurnEnd.LOST}[end]
    assert await run.run() is expected
    assert len(starts) == 1


async def test_an_agent_that_swallows_everything_starts_again_too(bench: Bench) -> None:
    """A bare except around the call does not publish a turn without the messages that it asked for."""
    app = await bench.app()
    starts: list[int] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        starts.append(turn.attempt)
        messages: list[Message] = []
        with contextlib.suppress(BaseException):
            messages = turn.messages()
        return str(len(messages))

    await _long(app, "s", 150)
    assert await _turn(app, "s") == "151"
    assert starts == [1, 1]


async def test_a_negative_number_of_messages_is_refused(bench: Bench) -> None:
    """Asking for a negative number of messages is an error in a turn, as it is outside."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        with pytest.raises(lash.InvalidInput):
            turn.messages(last=-1)
        return "refused"

    assert await _turn(app, "s") == "refused"


def test_one_long_read_does_not_make_all_later_ones_long() -> None:
    """What an agent asked for is remembered for at least a hundred turns, and forgotten after two hundred."""
    reach = Reach()
    reach.begin_turn()
    reach.ask(ALL)
    for _ in range(100):
        reach.begin_turn()
        assert reach.messages == ALL
        reach.ask(5)
    for _ in range(100):
        reach.begin_turn()
        reach.ask(5)
    assert reach.messages == 5
