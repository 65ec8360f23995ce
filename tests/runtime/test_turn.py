"""One turn: one claim, one commit with everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

import lash
from lash.base.compression import BlobRef
from lash.model.effect import TurnScope
from lash.model.queue import BatchState
from lash.model.session.message import Message, PartKind, Role
from lash.model.session.node import PluginEntry
from lash.model.session.session import ActivePath, ChildRelation
from lash.runtime.app import App
from lash.runtime.errors import Permanent, Suspended
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.turns.draft import State
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, texts


async def test_a_message_becomes_one_commit(bench: Bench) -> None:
    """Input, reply, usage, state and attachments are committed together; batch, lease and records are gone."""
    app = await bench.app()
    seen: list[str] = []

    @app.agent
    async def echo(turn: Turn) -> str:
        seen.append(turn.turn_id)
        loud = await turn.step("shout", str.upper, turn.text)
        turn.usage("model-1", input_tokens=7, output_tokens=3)
        turn.state["mood"] = {"calm": True}
        file = await turn.attach(b"bytes", "text/plain")
        turn.add(f"stored {file.id[:4]}")
        return loud

    chat = app.session("s", echo)
    sent = await chat.send("hello")
    assert await app.drain() == 1
    assert seen == [f"turn:{sent.batch_id}"]
    read = await app.storage.session("s").load()
    assert read is not None
    assert read.head.revision == 1
    assert texts(await chat.messages())[0] == ("user", "hello")
    assert texts(await chat.messages())[2] == ("assistant", "HELLO")
    assert [node.node_id for node in read.graph.nodes][2] == f"turn:{sent.batch_id}:reply"
    assert [(entry.model, entry.usage.input_tokens, entry.usage.output_tokens) for entry in read.usage] == [
        ("model-1", 7, 3)
    ]
    assert set(read.checkpoint.manifest.components) == {"mood"}
    stamped = await app.storage.attachments.list_uncommitted()
    assert stamped.entries == ()
    assert await chat.pending() == ()
    assert await app.storage.leases.holder("s") is None
    assert await app.storage.effects.list(TurnScope(session_id="s", turn_id=seen[0])) == ()


async def test_each_turn_sees_what_was_said_before(bench: Bench) -> None:
    """History includes the input and additions of the turn, in order; the last few, or none, can be read."""
    app = await bench.app()
    views: list[list[str]] = []

    @app.agent
    async def count(turn: Turn) -> str:
        turn.add("thinking")
        views.append([text for _, text in texts(turn.messages())])
        assert [text for _, text in texts(turn.messages(last=1))] == ["thinking"]
        assert turn.messages(last=0) == []
        return f"reply {len(views)}"

    chat = app.session("s", count)
    for text in ("one", "two"):
        await chat.send(text)
        await app.drain()
    assert views == [["one", "thinking"], ["one", "thinking", "reply 1", "two", "thinking"]]
    assert texts(await chat.messages(last=2)) == [("assistant", "thinking"), ("assistant", "reply 2")]
    assert await chat.messages(last=0) == []


async def test_state_is_kept_changed_and_deleted_by_name(bench: Bench) -> None:
    """Unassigned values keep their blobs, deleted ones are gone, assigned ones are there next time."""
    app = await bench.app()
    seen: list[dict[str, object]] = []

    @app.agent
    async def remember(turn: Turn) -> None:
        seen.append(dict(turn.state))
        match turn.text:
            case "set":
                turn.state.update(kept=[1], gone="soon", changed=1)
            case "change":
                del turn.state["gone"]
                turn.state["changed"] = 2
                assert "gone" not in turn.state
                assert len(turn.state) == 2

    chat = app.session("s", remember)
    await chat.send("set")
    await app.drain()
    before = await app.storage.session("s").checkpoint()
    assert before is not None
    await chat.send("change")
    await chat.send("look")
    await app.drain()
    after = await app.storage.session("s").checkpoint()
    assert after is not None
    assert seen == [{}, {"kept": [1], "gone": "soon", "changed": 1}, {"kept": [1], "changed": 2}]
    assert set(after.manifest.components) == {"kept", "changed"}
    assert after.manifest.components["kept"] == before.manifest.components["kept"]
    assert after.manifest.components["changed"] != before.manifest.components["changed"]


async def test_state_may_be_changed_in_place(bench: Bench) -> None:
    """Changes of lists and dicts that were read or assigned are saved, also nested ones; a failed turn saves none."""
    app = await bench.app()

    @app.agent(retry=Retry(max_attempts=2, first_pause_s=0))
    async def remember(turn: Turn) -> str:
        turn.state.setdefault("items", []).append(turn.text)
        counts = turn.state.setdefault("counts", {"by": {}})
        counts["by"][turn.text] = counts["by"].get(turn.text, 0) + 1
        if turn.text == "b" and turn.attempt == 1:
            raise ConnectionError("down")
        assert turn.state["items"] is turn.state["items"]
        mine = turn.state["mine"] = [0]
        mine.append(1)
        return str(turn.state["items"])

    chat = app.session("s", remember)
    for text in "aba":
        await chat.send(text)
    await app.drain()
    assert [text for role, text in texts(await chat.messages()) if role == "assistant"] == [
        "['a']",
        "['a', 'b']",
        "['a', 'b', 'a']",
    ]
    assert await chat.state() == {
        "items": ["a", "b", "a"],
        "counts": {"by": {"a": 2, "b": 1}},
        "mine": [0, 1],
    }


async def test_state_that_is_changed_to_something_else_than_json_fails_the_turn(bench: Bench) -> None:
    """The error names the state; nothing is saved."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> None:
        turn.state.setdefault("items", []).append({1, 2})

    chat = app.session("s", agent)
    await chat.send("x")
    await app.drain()
    (letter,) = await chat.dead_letters()
    assert "state 'items'" in letter.reason
    assert await chat.state() == {}


def test_state_is_encoded_only_where_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two values of 100 kB, the one that was read is encoded once, the other one never; neither is saved again."""
    encoded: list[object] = []
    large = ["x" * 100] * 1_000
    body = msgspec.json.encode({"value": large})
    refs = {name: BlobRef(name * 64) for name in "ab"}
    state = State(refs, dict.fromkeys("ab", body))
    real = msgspec.json.encode

    def counting(value: object) -> bytes:
        encoded.append(value)
        return real(value)

    monkeypatch.setattr("lash.runtime.turns.draft.msgspec.json.encode", counting)
    assert state["a"] == large
    assert state.components(refs) == state.components(refs) == refs
    assert len(encoded) == 1


async def test_state_takes_plain_json_only(bench: Bench) -> None:
    """A value that would not round-trip is refused at the assignment; an unknown name raises KeyError."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        with pytest.raises(lash.InvalidInput):
            turn.state["x"] = {1, 2}
        with pytest.raises(KeyError):
            turn.state["x"]
        with pytest.raises(KeyError):
            del turn.state["x"]
        return "refused"

    assert await _ask(app, agent, "go") == "refused"


async def test_an_agent_may_say_nothing(bench: Bench) -> None:
    """An agent that returns None consumes its input and adds nothing; ask returns an empty text."""
    app = await bench.app()

    @app.agent
    async def silent(turn: Turn) -> None:
        pass

    assert await _ask(app, silent, "hm") == ""
    assert texts(await app.session("s").messages()) == [("user", "hm")]


async def test_an_agent_may_return_a_message(bench: Bench) -> None:
    """A Message is committed as it is, under the id of the turn's reply."""
    app = await bench.app()

    @app.agent
    async def whole(turn: Turn) -> Message:
        return Message.of_text("mine", Role.SYSTEM, "whole")

    assert await _ask(app, whole, "x") == "whole"
    assert texts(await app.session("s").messages())[-1] == ("system", "whole")


async def test_tool_calls_stand_with_their_results(bench: Bench) -> None:
    """A tool call and its result are two parts of one message, named alike."""
    app = await bench.app()

    @app.agent
    async def tools(turn: Turn) -> str:
        turn.add_tool_call("c1", "search", '{"q": 1}', "found")
        return "done"

    await _ask(app, tools, "x")
    _, call, _ = await app.session("s").messages()
    assert [(part.kind.value, part.tool_name, part.content) for part in call.parts] == [
        ("tool_call", "search", '{"q": 1}'),
        ("tool_result", "search", "found"),
    ]


async def test_entries_of_a_framework_are_part_of_the_turn(bench: Bench) -> None:
    """Entries are committed between input and reply; the raw path is what was before the turn, in all attempts."""
    app = await bench.app()
    seen: list[list[str]] = []

    @app.agent(retry=lash.Retry(max_attempts=2, first_pause_s=0.001))
    async def agent(turn: Turn) -> str:
        seen.append([node.node_id.rpartition(":")[2] for node in await turn.raw_path()])
        assert [node.node_id for node in await turn.raw_path(1)] == [node.node_id for node in await turn.raw_path()][
            -1:
        ]
        turn.add_entry(PluginEntry(plugin_type="item", body={"attempt": turn.attempt}))
        if turn.text == "second" and turn.attempt == 1:
            raise OSError
        return "done"

    await _ask(app, agent, "first")
    await app.session("s", agent).send("second")
    while await app.storage.queue.list("s"):
        await app.drain()
        await bench.clock.advance(1_000)
    loaded = await app.storage.session("s").load(ActivePath())
    assert loaded is not None
    assert [node.kind for node in loaded.graph.nodes] == 2 * ["message", "plugin:item", "message"]
    assert loaded.graph.nodes[4].entry == PluginEntry(plugin_type="item", body={"attempt": 2})
    assert seen[0] == []
    assert len(seen[1]) == 3
    assert seen[2] == seen[1]


async def test_keys_for_a_framework_are_the_same_in_every_run(bench: Bench) -> None:
    """A key is unique in its run and its branch; in a task of other code there is none."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        async def inside() -> str:
            return turn.key("run")

        keys = [turn.key("run"), turn.key("run"), *await turn.gather(inside(), inside())]
        with pytest.raises(lash.ConfigError, match="key"):
            await asyncio.create_task(inside())
        return " ".join(keys)

    assert await _ask(app, agent, "x") == "run#1 run#2 gather#1.0/run#1 gather#1.1/run#1"


async def test_a_child_session_knows_its_parent(bench: Bench) -> None:
    """turn.child makes a session once, related to this one, and messages to it are answered by its own agent."""
    app = await bench.app()

    @app.agent
    async def parent(turn: Turn) -> str:
        child = await turn.child("c", agent=helper)
        await child.send("help", key="k")
        await (await turn.child("c", agent=helper)).send("help", key="k")
        return "asked"

    @app.agent
    async def helper(turn: Turn) -> str:
        return "helping"

    await app.session("s", parent).send("x")
    await app.drain()
    meta = await app.storage.session("c").meta()
    assert isinstance(meta.relation, ChildRelation)
    assert meta.relation.parent_session_id == "s"
    assert texts(await app.session("c").messages()) == [("user", "help"), ("assistant", "helping")]


async def test_attachments_of_messages_are_stamped(bench: Bench) -> None:
    """A turn commits the attachments of its input; a message with an unknown attachment is refused."""
    app = await bench.app()

    @app.agent
    async def look(turn: Turn) -> str:
        part = turn.messages()[-1].parts[1]
        assert part.attachment is not None
        return part.attachment.media_type

    chat = app.session("s", look)
    await app.storage.sessions.create("s")
    picture = await app.storage.attachments.put("s", b"picture", "image/png")
    with pytest.raises(lash.AttachmentNotFound):
        await chat.send("see", attachments=[lash.AttachmentRef(id="0" * 64, media_type="image/png", byte_len=1)])
    await chat.send("see", attachments=[picture])
    await app.drain()
    assert (await app.storage.attachments.list_uncommitted()).entries == ()
    assert texts(await chat.messages())[-1] == ("assistant", "image/png")


async def test_a_turn_does_nothing_after_its_end(bench: Bench) -> None:
    """A task that an agent left running cannot add to a committed turn."""
    app = await bench.app()
    kept: list[Turn] = []

    @app.agent
    async def leaky(turn: Turn) -> str:
        kept.append(turn)
        return "done"

    await _ask(app, leaky, "x")
    with pytest.raises(Suspended):
        kept[0].add("too late")


@pytest.mark.parametrize(
    ("reply", "named"),
    [(lambda: {1, 2}, "set"), (object, "object"), (lambda: "a\ud800", "surrogate")],
    ids=["set", "object", "surrogate"],
)
async def test_a_bad_reply_is_a_dead_letter_at_once(bench: Bench, reply: Callable[[], object], named: str) -> None:
    """A reply that no retry can fix is a dead letter at once, with its value; the session continues."""
    app = await bench.app()
    calls: list[str] = []

    @app.agent
    async def bad(turn: Turn) -> object:
        calls.append(turn.text)
        return reply() if turn.text == "bad" else "good"

    chat = app.session("s", bad)
    await chat.send("bad")
    await chat.send("next")
    await app.drain()
    (letter,) = await chat.dead_letters()
    assert named in letter.reason
    assert calls == ["bad", "next"]
    assert texts(await chat.messages()) == [("user", "next"), ("assistant", "good")]


@pytest.mark.parametrize("content", [5, {"a": 1}, None])
async def test_only_text_and_messages_are_added(bench: Bench, content: object) -> None:
    """Other values are refused when they are added."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        with pytest.raises(lash.InvalidInput):
            turn.add(content)  # type: ignore[arg-type]
        return "refused"

    assert await _ask(app, agent, "go") == "refused"


async def test_a_tool_call_takes_text_or_json(bench: Bench) -> None:
    """Arguments and result are stored as text or as JSON; what is neither is refused at the call."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> None:
        turn.add_tool_call("1", "look", '{"a": 1}', "r")
        turn.add_tool_call("2", "look", {"a": [1, None]}, {"found": "é"})
        with pytest.raises(lash.InvalidInput, match=r"the arguments of 'look'\['a'\] is of type set"):
            turn.add_tool_call("3", "look", {"a": {1, 2}}, "r")
        with pytest.raises(lash.InvalidInput, match="name must be text, not NoneType"):
            turn.add_tool_call("4", None, {}, "r")  # type: ignore[arg-type]

    chat = app.session("s", agent)
    await chat.send("go")
    await app.drain()
    _, *calls = await chat.messages()
    assert [[part.content for part in call.parts] for call in calls] == [
        ['{"a": 1}', "r"],
        ['{"a":[1,null]}', '{"found":"é"}'],
    ]


async def test_a_message_that_cannot_be_stored_fails_the_turn(bench: Bench) -> None:
    """A message with a part that is not text never reaches the conversation."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        turn.add(Message.of_text("m", Role.USER, 5))  # type: ignore[arg-type]
        return "x"

    chat = app.session("s", agent)
    await chat.send("go")
    await app.drain()
    assert len(await chat.dead_letters()) == 1
    assert await app.storage.session("s").load(ActivePath()) is None


async def test_a_message_has_its_text(bench: Bench) -> None:
    """``message.text`` is the text of a user and of an agent; a PDF is a file, a picture an image."""
    app = await bench.app()
    await app.storage.sessions.create("s")
    files = [await app.storage.attachments.put("s", b"%PDF", "application/pdf")]
    files.append(await app.storage.attachments.put("s", b"png", "image/png"))

    @app.agent
    async def agent(turn: Turn) -> str:
        (message,) = turn.messages()
        assert [part.kind for part in message.parts] == [PartKind.TEXT, PartKind.FILE, PartKind.IMAGE]
        return f"re {message.text}"

    chat = app.session("s", agent)
    await chat.send("look", attachments=files)
    await app.drain()
    assert [message.text for message in await chat.messages()] == ["look", "re look"]
    (summary,) = (await app.storage.sessions.list()).sessions
    assert summary.first_user_message == "look\n\n[File attached]\n\n[Image attached]"


async def test_a_step_result_that_cannot_be_stored_says_so(bench: Bench) -> None:
    """The error names the step and the type, and the input becomes a dead letter."""
    app = await bench.app()

    def sockets() -> object:
        return object()

    @app.agent
    async def agent(turn: Turn) -> str:
        return str(await turn.step("sockets", sockets))

    chat = app.session("s", agent)
    await chat.send("go", key="k")
    await app.drain()
    (letter,) = await chat.dead_letters()
    assert "sockets" in letter.reason
    assert "object" in letter.reason
    assert (await chat.send("go", key="k")).state is BatchState.DEAD


async def test_an_agent_has_only_so_much_time(bench: Bench) -> None:
    """After timeout_s the turn fails with an error that names the limit."""
    app = await bench.app()

    @app.agent(timeout_s=0.01, retry=NO_RETRY)
    async def slow(turn: Turn) -> str:
        await turn.step("wait", _for_ever)
        return "never"

    chat = app.session("s", slow)
    await chat.send("go")
    await app.drain()
    (letter,) = await chat.dead_letters()
    assert letter.reason == "TimeoutError: agent 'slow' took longer than 0.01 s"


async def test_a_failing_hook_of_the_agent_buys_no_second_completion(bench: Bench) -> None:
    """The model's answer is recorded before hooks see it, so a retry does not call the model."""
    app = await bench.app()
    bought: list[str] = []

    async def complete(prompt: str) -> str:
        bought.append(prompt)
        return f"completion of {prompt}"

    @app.agent(retry=Retry(max_attempts=3, first_pause_s=0))
    async def agent(turn: Turn) -> str:
        raw = await turn.step("model", complete, turn.text)
        if turn.attempt < 3:
            raise ValueError("the guard rail fell over")
        return raw

    assert await _ask(app, agent, "x") == "completion of x"
    assert bought == ["x"]


async def test_usage_is_booked_once(bench: Bench) -> None:
    """However many attempts a turn takes, its tokens are the committed attempt's."""
    app = await bench.app()

    @app.agent(retry=Retry(max_attempts=3, first_pause_s=0))
    async def agent(turn: Turn) -> str:
        turn.usage("m", input_tokens=10)
        if turn.attempt < 3:
            raise ValueError("again")
        return "ok"

    await _ask(app, agent, "x")
    assert [(entry.model, entry.usage.input_tokens) for entry in await app.session("s").usage()] == [("m", 10)]


async def test_a_recorded_failure_is_met_again(bench: Bench) -> None:
    """A retry runs the same steps, even if the agent continued after a step that failed permanently."""
    app = await bench.app()
    calls: list[str] = []

    async def charge() -> str:
        calls.append("charge")
        raise Permanent("card refused")

    async def mail() -> str:
        calls.append("mail")
        return "sent"

    @app.agent(retry=Retry(max_attempts=2, first_pause_s=0))
    async def agent(turn: Turn) -> str:
        try:
            await turn.step(charge)
        except lash.StepFailed as failure:
            sent = await turn.step(mail)
            if turn.attempt == 1:
                raise ValueError("crash") from failure
            return f"{sent}: {failure.code}"
        return "charged"

    assert await _ask(app, agent, "x") == "sent: Permanent"
    assert calls == ["charge", "mail"]


async def _ask(app: App, agent: lash.AgentDefinition, text: str) -> str:
    chat = app.session("s", agent)
    await chat.send(text, key="k")
    await app.drain()
    return await chat.ask(text, key="k", timeout_s=5)


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()
