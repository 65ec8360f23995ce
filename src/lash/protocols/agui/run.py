"""One run as events of AG-UI.

Events of activity are a preview. When the turn has ended, what the client has is compared with what was committed: the
missing rest is sent as events, and anything that differs is replaced by a snapshot of the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from lash.agents.vocabulary import ToolCall
from lash.model.value import JSON
from lash.protocols.agui.messages import JSONMessage, call_of, in_order, normal, result_of, round_id, said
from lash.protocols.front_end.follow import Began, Called, Ended, Event, Piece, Quiet, Returned, Shown, Thought
from lash.protocols.front_end.turn import Asked, Attached, Replied
from lash.runtime.turns.draft import reply_id

Fields = dict[str, Any]
"""One event of AG-UI, as JSON."""


class Run:
    """The messages of one turn as a client has them, and the events that change them."""

    def __init__(self, turn: Attached, earlier: Sequence[object], known: list[JSONMessage]) -> None:
        """``earlier`` are the client's messages up to that of this turn, ``known`` its messages of the turn itself."""
        self._turn_id = turn.turn_id
        self._earlier = earlier
        self._has = [each for message in known if (each := normal(message)) is not None]
        self._message_id = reply_id(turn.turn_id)
        self._speaking: JSONMessage | None = None
        self._thinking = ""
        self._thoughts = 0
        self._spoken: set[str] = set()
        self._begins_anew = turn.is_whole and bool(self._has)

    def begin(self) -> Iterator[Fields]:
        """Yield what a client needs before the rest: it forgets what it has of a turn that is shown from its begin."""
        if self._begins_anew:
            self._has = []
            yield self._snapshot()

    def events(self, event: Event) -> Iterator[Fields]:
        """Yield the events for something that the turn has shown."""
        match event:
            case Began():
                yield from self._began(event)
            case Piece(text) if text:
                yield from self._speak(text)
            case Thought(text) if text:
                yield from self._think(text)
            case Called(call):
                yield from self._call(call)
            case Returned(call_id, str(text)):
                yield from self._return(call_id, text)
            case Shown(payload):
                yield {"type": "CUSTOM", "name": "activity", "value": payload}
            case Quiet() | Ended() | Piece() | Thought() | Returned():
                return

    def settle(self, replied: Replied) -> Iterator[Fields]:
        """Yield what turns the client's messages into the committed ones."""
        wanted = said(replied.messages)
        for message in wanted:
            # A client puts a result behind its call, wherever the event comes; a snapshot would put it at the end.
            if message["role"] == "tool":
                yield from self._return(message["toolCallId"], message["content"])
        self._has = in_order(self._has)
        if not self._is_begin_of(wanted):
            yield from self._close()
            # A client keeps the order of the messages that it has, so it forgets them first.
            self._has = []
            yield self._snapshot()
            self._has = wanted
            yield self._snapshot()
            return
        last = len(self._has) - 1
        for place, message in enumerate(wanted):
            if place < last:
                continue
            yield from self._complete(message, self._has[place] if place == last else {})
        yield from self._close()

    def close(self) -> Iterator[Fields]:
        """Yield the ends of what is open."""
        yield from self._close()

    def ask(self, asked: tuple[Asked, ...]) -> Iterator[Fields]:
        """Yield the tool calls that wait for an approval, as far as the client does not have them."""
        for each in asked:
            if each.call is not None:
                yield from self._call(each.call)
        yield from self._close()

    def _began(self, began: Began) -> Iterator[Fields]:
        message_id = round_id(self._turn_id, began.place) if began.is_round else reply_id(self._turn_id)
        place = next((place for place, each in enumerate(self._has) if each["id"] == message_id), None)
        yield from self._close()
        self._message_id = message_id
        if place is not None and (began.is_again or message_id not in self._spoken):
            # The reply began before, in this run or in an earlier one of the client, and was cut off.
            del self._has[place:]
            yield self._snapshot()

    def _speak(self, text: str) -> Iterator[Fields]:
        yield from self._end_thought()
        if self._speaking is None:
            self._speaking = self._message()
            self._spoken.add(self._message_id)
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._message_id, "role": "assistant"}
        self._speaking["content"] = self._speaking.get("content", "") + text
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message_id, "delta": text}

    def _think(self, text: str) -> Iterator[Fields]:
        yield from self._end_text()
        if not self._thinking:
            self._thoughts += 1
            self._thinking = f"{self._message_id}:reasoning:{self._thoughts}"
            yield {"type": "REASONING_START", "messageId": self._thinking}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._thinking, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._thinking, "delta": text}

    def _call(self, call: ToolCall) -> Iterator[Fields]:
        if any(call.id == each["id"] for message in self._has for each in message.get("toolCalls", ())):
            return
        yield from self._close()
        message = self._message()
        message.setdefault("toolCalls", []).append(call_of(call.id, call.name, call.arguments))
        yield from _call_events(call.id, call.name, call.arguments, message["id"])

    def _return(self, call_id: str, text: str) -> Iterator[Fields]:
        has_call = any(call_id == each["id"] for message in self._has for each in message.get("toolCalls", ()))
        has_result = any(each.get("toolCallId") == call_id for each in self._has)
        if has_call and not has_result:
            self._has.append(result_of(call_id, text))
            yield _result_event(self._has[-1])

    def _message(self) -> JSONMessage:
        """Return the message of the current reply, which is new if the client does not have it."""
        for each in self._has:
            if each["id"] == self._message_id:
                return each
        self._has.append({"id": self._message_id, "role": "assistant"})
        return self._has[-1]

    def _is_begin_of(self, wanted: list[JSONMessage]) -> bool:
        """Return whether the client's messages are the first of the wanted ones, the last one perhaps in part."""
        if len(self._has) > len(wanted):
            return False
        last = len(self._has) - 1
        pairs = zip(self._has, wanted, strict=False)
        return all(_is_part(has, want) if place == last else has == want for place, (has, want) in enumerate(pairs))

    def _complete(self, wanted: JSONMessage, has: JSONMessage) -> Iterator[Fields]:
        if wanted["role"] == "tool":
            if not has:
                yield _result_event(wanted)
            return
        self._message_id = wanted["id"]
        rest = wanted.get("content", "")[len(has.get("content", "")) :]
        if rest:
            if self._speaking is None:
                yield {"type": "TEXT_MESSAGE_START", "messageId": wanted["id"], "role": "assistant"}
            self._speaking = self._speaking or {}
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": wanted["id"], "delta": rest}
        yield from self._close()
        for call in wanted.get("toolCalls", ())[len(has.get("toolCalls", ())) :]:
            function = call["function"]
            yield from _call_events(call["id"], function["name"], function["arguments"], wanted["id"])

    def _snapshot(self) -> Fields:
        return {"type": "MESSAGES_SNAPSHOT", "messages": [*self._earlier, *self._has]}

    def _close(self) -> Iterator[Fields]:
        yield from self._end_thought()
        yield from self._end_text()

    def _end_text(self) -> Iterator[Fields]:
        if self._speaking is not None:
            self._speaking = None
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._message_id}

    def _end_thought(self) -> Iterator[Fields]:
        if self._thinking:
            thinking, self._thinking = self._thinking, ""
            yield {"type": "REASONING_MESSAGE_END", "messageId": thinking}
            yield {"type": "REASONING_END", "messageId": thinking}


def interrupt(asked: Asked) -> Fields:
    """Return an open question as an interrupt."""
    question = asked.question
    fields: Fields = {"id": asked.wait_id, "reason": "input_required", "message": question.text}
    if asked.call is not None:
        fields |= {"reason": "tool_call", "toolCallId": asked.call.id}
    if question.schema is not None:
        fields["responseSchema"] = question.schema
    if asked.deadline_ms is not None:
        fields["expiresAt"] = datetime.fromtimestamp(asked.deadline_ms / 1_000, UTC).isoformat()
    if question.details is not None:
        fields["metadata"] = {"details": question.details}
    return fields


def state_patch(before: dict[str, JSON], after: dict[str, JSON]) -> list[Fields]:
    """Return the changes of a state as a JSON patch, one for each name."""
    gone = [{"op": "remove", "path": _pointer(name)} for name in before if name not in after]
    new = [
        {"op": "replace" if name in before else "add", "path": _pointer(name), "value": value}
        for name, value in after.items()
        if name not in before or before[name] != value
    ]
    return [*gone, *new]


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _call_events(call_id: str, name: str, arguments: str, message_id: str) -> Iterator[Fields]:
    yield {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": name, "parentMessageId": message_id}
    yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": arguments}
    yield {"type": "TOOL_CALL_END", "toolCallId": call_id}


def _result_event(message: JSONMessage) -> Fields:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": message["id"],
        "toolCallId": message["toolCallId"],
        "content": message["content"],
        "role": "tool",
    }


def _is_part(has: JSONMessage, wanted: JSONMessage) -> bool:
    if has["id"] != wanted["id"] or has.get("role") != wanted["role"]:
        return False
    if wanted["role"] == "tool":
        return bool(has == wanted)
    calls, wanted_calls = has.get("toolCalls", []), wanted.get("toolCalls", [])
    text, wanted_text = has.get("content") or "", wanted.get("content", "")
    is_begin = wanted_calls[: len(calls)] == calls and wanted_text.startswith(text)
    # Calls come after the whole text.
    return bool(is_begin and (text == wanted_text or not calls))
