"""What a client has after a preview that went wrong: exactly what was committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from lash.agents.vocabulary import ToolCall
from lash.model.activity import Gap, TurnActivity
from lash.model.gap import GapReason
from lash.model.session.message import Message, Part, PartKind, ResponseMeta, Role
from lash.protocols.agui.run import Run, state_patch
from lash.protocols.front_end.follow import Began, Called, Event, Piece, Returned, Thought, _Reader
from lash.protocols.front_end.turn import Attached, Replied
from lash.protocols.vercel.reply import SUPERSEDED, Reply

FIRST = Began("1", is_round=True, is_again=False)
AGAIN = Began("1", is_round=True, is_again=True)
SECOND = Began("2", is_round=True, is_again=False)
STREAM = Began("model", is_round=False, is_again=False)
STREAM_AGAIN = Began("model", is_round=False, is_again=True)
ROME = ToolCall(id="c1", name="weather", arguments='{"city":"Rome"}')
OSLO = ToolCall(id="c2", name="weather", arguments='{"city":"Oslo"}')
NEW = Attached("s", "b", "cursor", is_whole=True, is_new=True)
USER = {"id": "u1", "role": "user", "content": "hi"}

Fields = dict[str, Any]


def spoken(number: int, text: str, *calls: ToolCall) -> Message:
    """Return a reply of the model as its agent commits it."""
    parts = [Part(id=f"turn:b:{number}.0", kind=PartKind.PROSE, content=text)] if text else []
    parts += [
        Part(
            id=f"turn:b:{number}.{place}",
            kind=PartKind.TOOL_CALL,
            content=call.arguments,
            tool_call_id=call.id,
            tool_name=call.name,
        )
        for place, call in enumerate(calls, 1)
    ]
    return Message(id=f"node-{number}", role=Role.ASSISTANT, parts=tuple(parts))


def returned(*results: tuple[ToolCall, str]) -> Message:
    parts = [
        Part(id=f"{call.id}:result", kind=PartKind.TOOL_RESULT, content=text, tool_call_id=call.id)
        for call, text in results
    ]
    return Message(id="node-results", role=Role.ASSISTANT, parts=tuple(parts))


def plain(text: str) -> Message:
    """Return the reply of an agent without a model."""
    part = Part(id="turn:b:reply:0", kind=PartKind.PROSE, content=text)
    return Message(id="turn:b:reply", role=Role.ASSISTANT, parts=(part,))


def called(call: ToolCall, text: str) -> Message:
    """Return a call with its result as an agent function adds it."""
    kinds = ((PartKind.TOOL_CALL, call.arguments), (PartKind.TOOL_RESULT, text))
    parts = tuple(
        Part(id=f"{call.id}:{kind}", kind=kind, content=content, tool_call_id=call.id, tool_name=call.name)
        for kind, content in kinds
    )
    return Message(id="turn:b:1", role=Role.ASSISTANT, parts=parts)


TOOLS = (spoken(1, "Let me see.", ROME, OSLO), returned((ROME, "sunny"), (OSLO, "rain")), spoken(2, "Both."))
OWN = (called(ROME, "sunny"), plain("Done."))
CALLED: tuple[Event, ...] = (FIRST, Piece("Let me see."), Called(ROME), Called(OSLO))

CASES: dict[str, tuple[tuple[Event, ...], tuple[Message, ...], str]] = {
    "all of it was shown": ((FIRST, Piece("a"), Piece("b")), (spoken(1, "ab"),), "ab"),
    "nothing was shown": ((), (spoken(1, "ab"),), "ab"),
    "the end is missing": ((FIRST, Piece("a")), (spoken(1, "ab"),), "ab"),
    "the middle is missing": ((FIRST, Piece("a"), Piece("c")), (spoken(1, "abc"),), "abc"),
    "a worker died": ((FIRST, Piece("x"), Piece("y"), AGAIN, Piece("a")), (spoken(1, "a"),), "a"),
    "a worker died while it thought": ((FIRST, Thought("x"), AGAIN, Thought("y"), Piece("a")), (spoken(1, "a"),), "a"),
    "a stream was cut off": ((STREAM, Piece("x"), STREAM_AGAIN, Piece("a")), (plain("a"),), "a"),
    "the reply is another one": ((STREAM, Piece("draft")), (plain("final"),), "final"),
    "more was shown than said": ((FIRST, Piece("a"), SECOND, Piece("b")), (spoken(1, "a"),), "a"),
    "there is no reply": ((), (), ""),
    "tools": (
        (*CALLED, Returned("c1", "sunny", failed=False), Returned("c2", "rain", failed=False), SECOND, Piece("Both.")),
        TOOLS,
        "Let me see.Both.",
    ),
    "tools return in another order": (
        (*CALLED, Returned("c2", "rain", failed=False), Returned("c1", "sunny", failed=False), SECOND, Piece("Both.")),
        TOOLS,
        "Let me see.Both.",
    ),
    "a result is too long for a preview": (
        (*CALLED, Returned("c1", None, failed=False), Returned("c2", "rain", failed=False), SECOND, Piece("Both.")),
        TOOLS,
        "Let me see.Both.",
    ),
    "tools without a preview": ((), TOOLS, "Let me see.Both."),
    "a function calls its own tools": (
        (Called(ROME), Returned("c1", "sunny", failed=False), STREAM, Piece("Done.")),
        OWN,
        "Done.",
    ),
    "a tool is called again": ((*CALLED, Called(ROME)), TOOLS, "Let me see.Both."),
    "a result without its call": ((Returned("c9", "?", failed=False),), TOOLS, "Let me see.Both."),
}


class Page:
    """A client of AG-UI: it keeps messages, as the rules of the protocol say, and checks what is open."""

    def __init__(self, *messages: Fields) -> None:
        self.messages: list[Fields] = list(messages)
        self._open: set[str] = set()

    def apply(self, events: Iterable[Fields]) -> None:
        for event in events:
            getattr(self, event["type"].lower(), lambda _: None)(event)

    def text_message_start(self, event: Fields) -> None:
        assert event["messageId"] not in self._open
        self._open.add(event["messageId"])
        self._message(event["messageId"])

    def text_message_content(self, event: Fields) -> None:
        assert event["messageId"] in self._open
        message = self._message(event["messageId"])
        message["content"] = message.get("content", "") + event["delta"]

    def text_message_end(self, event: Fields) -> None:
        self._open.remove(event["messageId"])

    def tool_call_start(self, event: Fields) -> None:
        assert not self._open
        calls = self._message(event["parentMessageId"]).setdefault("toolCalls", [])
        assert event["toolCallId"] not in [each["id"] for each in calls]
        function = {"name": event["toolCallName"], "arguments": ""}
        calls.append({"id": event["toolCallId"], "type": "function", "function": function})

    def tool_call_args(self, event: Fields) -> None:
        for message in self.messages:
            for call in message.get("toolCalls", ()):
                if call["id"] == event["toolCallId"]:
                    call["function"]["arguments"] += event["delta"]

    def tool_call_result(self, event: Fields) -> None:
        place = next(
            place
            for place, message in enumerate(self.messages, 1)
            if event["toolCallId"] in [call["id"] for call in message.get("toolCalls", ())]
        )
        while place < len(self.messages) and self.messages[place]["role"] == "tool":
            place += 1
        result = {name: event[name] for name in ("toolCallId", "content")}
        self.messages.insert(place, {"id": event["messageId"], "role": "tool", **result})

    def messages_snapshot(self, event: Fields) -> None:
        assert not self._open
        wanted = {each["id"]: each for each in event["messages"]}
        kept = [wanted.pop(each["id"]) for each in self.messages if each["id"] in wanted]
        self.messages = [dict(each) for each in (*kept, *wanted.values())]

    def finished(self) -> list[Fields]:
        assert not self._open
        return self.messages

    def _message(self, message_id: str) -> Fields:
        for each in self.messages:
            if each["id"] == message_id:
                return each
        self.messages.append({"id": message_id, "role": "assistant"})
        return self.messages[-1]


@pytest.mark.parametrize("case", CASES)
def test_an_agui_client_has_what_was_committed(case: str) -> None:
    """Whatever the preview showed, the texts, calls and results are those of the commit, each one once."""
    shown, messages, text = CASES[case]
    page, run = Page(USER), Run(NEW, [USER], [])
    for event in shown:
        page.apply(run.events(event))
    page.apply(run.settle(Replied(messages)))
    user, *replies = page.finished()
    assert user == USER
    assert "".join(each.get("content", "") for each in replies if each["role"] == "assistant") == text
    calls = [call["function"]["arguments"] for each in replies for call in each.get("toolCalls", ())]
    results = sorted(each["content"] for each in replies if each["role"] == "tool")
    order = ["call" if "toolCalls" in each else each["role"] for each in replies]
    if messages is TOOLS:
        assert (calls, results) == ([ROME.arguments, OSLO.arguments], ["rain", "sunny"])
        assert order == ["call", "tool", "tool", "assistant"]
    elif messages is OWN:
        assert (calls, results, order) == ([ROME.arguments], ["sunny"], ["call", "tool", "assistant"])
    else:
        assert (calls, results, order) == ([], [], ["assistant"] if text else [])


def test_half_a_reply_is_taken_back_at_once() -> None:
    """When the next worker begins, the client has nothing left of the reply that was cut off."""
    for begun, again in ((FIRST, AGAIN), (STREAM, STREAM_AGAIN)):
        page, run = Page(USER), Run(NEW, [USER], [])
        for event in (begun, Piece("half"), again):
            page.apply(run.events(event))
        assert page.finished() == [USER]


def test_a_whole_preview_needs_no_snapshot() -> None:
    """A client that saw everything gets no message twice."""
    for case in ("all of it was shown", "tools", "tools return in another order", "nothing was shown"):
        shown, messages, _ = CASES[case]
        run = Run(NEW, [USER], [])
        events = [fields for event in shown for fields in run.events(event)] + list(run.settle(Replied(messages)))
        assert "MESSAGES_SNAPSHOT" not in [each["type"] for each in events], case


def test_what_an_agui_client_brings_is_corrected() -> None:
    """A client that comes back with half a reply has the whole at the end, shown from its begin or not."""
    half = {"id": "turn:b:1", "role": "assistant", "content": "wro"}
    for turn in (Attached("s", "b", "c", is_whole=True), Attached("s", "b", "c", is_whole=False)):
        page, run = Page(USER, half), Run(turn, [USER], [dict(half)])
        page.apply(run.begin())
        for event in (FIRST, Piece("right")):
            page.apply(run.events(event))
        page.apply(run.settle(Replied((spoken(1, "right"),))))
        assert page.finished() == [USER, {"id": "turn:b:1", "role": "assistant", "content": "right"}]


def test_a_continued_run_adds_to_what_the_client_has() -> None:
    """After an answer only the rest is sent: the result of the tool and the next reply."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ROME.arguments}}
    known = {"id": "turn:b:1", "role": "assistant", "content": "Let me see.", "toolCalls": [call]}
    run = Run(Attached("s", "b", "c", is_whole=False, is_continued=True), [USER], [known])
    events = [*run.begin()]
    for event in (Called(ROME), Returned("c1", "sunny", failed=False), SECOND, Piece("Sunny.")):
        events += run.events(event)
    said = (spoken(1, "Let me see.", ROME), returned((ROME, "sunny")), spoken(2, "Sunny."))
    events += run.settle(Replied(said))
    assert [each["type"] for each in events] == [
        "TOOL_CALL_RESULT", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
    ]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_chat_has_what_was_committed(case: str) -> None:
    """Whatever the preview showed, the texts that are not superseded, and the tools, are those of the commit."""
    shown, messages, text = CASES[case]
    reply = Reply(NEW, [], ())
    chunks = [*reply.begin(), *(chunk for event in shown for chunk in reply.chunks(event))]
    chunks += reply.settle(Replied(messages))
    texts: dict[str, str] = {}
    tools: dict[str, object] = {}
    for chunk in chunks:
        match chunk:
            case {"type": "text-start", "id": part_id}:
                texts[part_id] = ""
            case {"type": "text-delta", "id": part_id, "delta": delta}:
                texts[part_id] += delta
            case {"type": "text-end", "providerMetadata": metadata, "id": part_id}:
                assert metadata == SUPERSEDED
                del texts[part_id]
            case {"type": "tool-input-available", "toolCallId": call_id}:
                assert call_id not in tools
                tools[call_id] = None
            case {"type": "tool-output-available", "toolCallId": call_id, "output": output}:
                assert tools[call_id] is None
                tools[call_id] = output
    assert "".join(texts.values()) == text
    both: dict[str, object] = {"c1": "sunny", "c2": "rain"}
    assert tools == (both if messages is TOOLS else {"c1": "sunny"} if messages is OWN else {})
    starts = [each["type"] for each in chunks].count("start-step")
    assert starts == [each["type"] for each in chunks].count("finish-step")
    assert chunks[-1] == {"type": "finish", "finishReason": "stop"}


def test_a_denied_and_a_failed_call_differ() -> None:
    """A call that the client denied has its own end; one that failed has its error."""
    failed = ResponseMeta(status="failed")
    parts = [
        Part(id="r", kind=PartKind.TOOL_RESULT, content=f"no {call.id}", tool_call_id=call.id, response_meta=failed)
        for call in (ROME, OSLO)
    ]
    said = (spoken(1, "", ROME, OSLO), Message(id="n", role=Role.ASSISTANT, parts=tuple(parts)))
    chunks = list(Reply(NEW, [], {"c1"}).settle(Replied(said)))
    ends = [each for each in chunks if each["type"].startswith("tool-output")]
    assert ends == [
        {"type": "tool-output-denied", "toolCallId": "c1"},
        {"type": "tool-output-error", "toolCallId": "c2", "errorText": "no c2"},
    ]


def activity(payload: object, turn_id: str = "turn:b") -> TurnActivity:
    return TurnActivity(cursor="c", turn_id=turn_id, payload=payload)  # type: ignore[arg-type]


def read(turn: Attached, *observed: Any) -> list[Event]:  # noqa: ANN401 (observed values)
    reader = _Reader(turn)
    return [event for each in observed for event in reader.read(each)]


def test_half_a_text_is_not_shown() -> None:
    """Where activity is missing, nothing is shown before the next begin of a reply."""
    trimmed = Attached("s", "b", "c", is_whole=False)
    pieces = [activity({"text": "b"}), activity({"model_call": 2}), activity({"text": "c"})]
    assert read(trimmed, *pieces) == [SECOND, Piece("c")]
    # Activity of an earlier turn is kept, so that of this turn is whole.
    assert read(trimmed, activity({"text": "x"}, "turn:a"), *pieces) == [Piece("b"), SECOND, Piece("c")]
    lost = Gap(cursor="c", reason=GapReason.DROPPED, revision=1, lost=1)
    assert read(NEW, activity({"model_call": 1}), lost, *pieces) == [FIRST, SECOND, Piece("c")]


def test_activity_is_read_as_its_agents_show_it() -> None:
    """Replies, streams, tools and approvals are known; anything else is passed on as it is."""
    call = {"id": "c1", "name": "weather", "arguments": ROME.arguments}
    shown = [
        ({"model_call": 1}, "Began"), ({"model_call": 1}, "Began"), ({"stream": "model"}, "Began"), ("text", "Piece"),
        ({"reasoning": "?"}, "Thought"), ({"tool_call": call}, "Called"), ({"approval": call}, "Called"),
        ({"tool_result": {"id": "c1", "failed": True}}, "Returned"), ({"tool_call": {"id": 7}}, "Shown"),
        ({"budget": "used"}, "Shown"), (7, "Shown"),
    ]  # fmt: skip
    events = read(NEW, *(activity(payload) for payload, _ in shown))
    assert [type(event).__name__ for event in events] == [kind for _, kind in shown]
    assert [event.is_again for event in events if isinstance(event, Began)] == [False, True, False]
    assert read(NEW, activity({"text": "x"}, "turn:other")) == []


def test_a_state_is_patched_by_name() -> None:
    """A patch has one operation for each name, with names escaped as JSON pointers are."""
    patch = state_patch({"same": 1, "old/name": 2, "new": 3}, {"same": 1, "new": 4, "a~b": [5]})
    assert patch == [
        {"op": "remove", "path": "/old~1name"},
        {"op": "replace", "path": "/new", "value": 4},
        {"op": "add", "path": "/a~0b", "value": [5]},
    ]
