"""One turn as chunks of the AI SDK's UI message stream.

The stream has no way to take back a text. A text that a crash made void is marked as superseded, in its metadata, and
the text that counts follows as a part of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from lash.protocols.front_end.follow import Began, Called, Ended, Event, Piece, Quiet, Returned, Shown, Thought
from lash.protocols.front_end.turn import Asked, Attached, Replied
from lash.protocols.vercel.messages import Call, Result, Said, Step, UIPart, spoken, value_of
from lash.runtime.turns.draft import reply_id

Chunk = dict[str, Any]
SUPERSEDED: Final = {"lash": {"superseded": True}}
"""The metadata of a text that is void; front ends hide it."""


class Reply:
    """The message of one turn as a client has it, and the chunks that change it."""

    def __init__(self, turn: Attached, known: list[UIPart], denied: Collection[str]) -> None:
        """``known`` are the parts that the client has and keeps, ``denied`` the calls that it has denied."""
        self._message_id = reply_id(turn.turn_id)
        self._texts = [part["text"] for part in known if _counts(part)]
        tools = [part for part in known if isinstance(part.get("toolCallId"), str)]
        self._calls = {part["toolCallId"] for part in tools}
        self._results = {part["toolCallId"] for part in tools if str(part.get("state")).startswith("output-")}
        self._denied = denied
        self._is_in_step = False
        self._open = ""
        self._thinking = ""
        self._numbers = 0

    def begin(self) -> Iterator[Chunk]:
        yield {"type": "start", "messageId": self._message_id}

    def chunks(self, event: Event) -> Iterator[Chunk]:
        """Yield the chunks for something that the turn has shown."""
        match event:
            case Began(is_again=is_again):
                yield from self._begin_step(supersedes=is_again)
            case Piece(text) if text:
                yield from self._speak(text)
            case Thought(text) if text:
                yield from self._think(text)
            case Called(call):
                yield from self._call(Call(call.id, call.name, call.arguments))
            case Returned(call_id, str(text), failed):
                yield from self._return(Result(call_id, text, failed))
            case Shown(payload):
                yield {"type": "data-activity", "data": payload, "transient": True}
            case Quiet() | Ended() | Piece() | Thought() | Returned():
                return

    def settle(self, replied: Replied) -> Iterator[Chunk]:
        """Yield what the client lacks of the committed messages, and mark a text that differs from them."""
        place, is_step_new = 0, False
        for each in spoken(replied.messages):
            is_new = isinstance(each, Said) and place >= len(self._texts)
            if is_step_new and (is_new or (isinstance(each, Call) and each.call_id not in self._calls)):
                yield from self._begin_step(supersedes=False)
            is_step_new = isinstance(each, Step)
            match each:
                case Said(text):
                    yield from self._settle_text(text, place)
                    place += 1
                case Call():
                    yield from self._call(each)
                case Result():
                    yield from self._return(each)
        if self._open and len(self._texts) > place:
            yield from self._end_text(supersedes=True)
        yield from self.finish("stop")

    def ask(self, asked: tuple[Asked, ...]) -> Iterator[Chunk]:
        """Yield the tool calls that wait for an approval, and other questions, and end the message."""
        for each in asked:
            call, question = each.call, each.question
            if call is None:
                data = {"text": question.text, "schema": question.schema, "details": question.details}
                yield {"type": "data-question", "id": each.wait_id, "data": data}
                continue
            yield from self._call(Call(call.id, call.name, call.arguments))
            yield {"type": "tool-approval-request", "approvalId": each.wait_id, "toolCallId": call.id}
        yield from self.finish("tool-calls")

    def finish(self, reason: str) -> Iterator[Chunk]:
        yield from self.close()
        yield {"type": "finish", "finishReason": reason}

    def close(self) -> Iterator[Chunk]:
        """Yield the ends of what is open."""
        yield from self._end_thought()
        yield from self._end_text()
        if self._is_in_step:
            self._is_in_step = False
            yield {"type": "finish-step"}

    def _begin_step(self, *, supersedes: bool) -> Iterator[Chunk]:
        yield from self._end_thought(supersedes=supersedes)
        yield from self._end_text(supersedes=supersedes)
        if self._is_in_step and not supersedes:
            yield {"type": "finish-step"}
        if not self._is_in_step or not supersedes:
            yield {"type": "start-step"}
        self._is_in_step = True

    def _speak(self, text: str) -> Iterator[Chunk]:
        yield from self._end_thought()
        if not self._open:
            self._open = self._part_id()
            self._texts.append("")
            yield {"type": "text-start", "id": self._open}
        self._texts[-1] += text
        yield {"type": "text-delta", "id": self._open, "delta": text}

    def _think(self, text: str) -> Iterator[Chunk]:
        yield from self._end_text()
        if not self._thinking:
            self._thinking = self._part_id()
            yield {"type": "reasoning-start", "id": self._thinking}
        yield {"type": "reasoning-delta", "id": self._thinking, "delta": text}

    def _call(self, call: Call) -> Iterator[Chunk]:
        if call.call_id in self._calls:
            return
        self._calls.add(call.call_id)
        yield from self._end_thought()
        yield from self._end_text()
        chunk = {"type": "tool-input-available", "toolCallId": call.call_id, "toolName": call.name}
        yield {**chunk, "input": value_of(call.arguments)}

    def _return(self, result: Result) -> Iterator[Chunk]:
        if result.call_id in self._results or result.call_id not in self._calls:
            return
        self._results.add(result.call_id)
        if result.failed and result.call_id in self._denied:
            yield {"type": "tool-output-denied", "toolCallId": result.call_id}
        elif result.failed:
            yield {"type": "tool-output-error", "toolCallId": result.call_id, "errorText": result.text}
        else:
            yield {"type": "tool-output-available", "toolCallId": result.call_id, "output": value_of(result.text)}

    def _settle_text(self, text: str, place: int) -> Iterator[Chunk]:
        shown = self._texts[place] if place < len(self._texts) else None
        if shown == text:
            return
        is_open = bool(self._open) and place == len(self._texts) - 1
        if is_open and shown is not None and text.startswith(shown):
            yield from self._speak(text[len(shown) :])
            return
        if is_open:
            yield from self._end_text(supersedes=True)
        yield from self._end_text()
        self._texts.insert(place, text)
        part_id = self._part_id()
        yield {"type": "text-start", "id": part_id}
        yield {"type": "text-delta", "id": part_id, "delta": text}
        yield {"type": "text-end", "id": part_id}

    def _end_text(self, *, supersedes: bool = False) -> Iterator[Chunk]:
        if self._open:
            part_id, self._open = self._open, ""
            if supersedes:
                self._texts.pop()
            yield _end("text-end", part_id, supersedes=supersedes)

    def _end_thought(self, *, supersedes: bool = False) -> Iterator[Chunk]:
        if self._thinking:
            part_id, self._thinking = self._thinking, ""
            yield _end("reasoning-end", part_id, supersedes=supersedes)

    def _part_id(self) -> str:
        self._numbers += 1
        return f"{self._message_id}:{self._numbers}"


def _end(kind: str, part_id: str, *, supersedes: bool) -> Chunk:
    chunk: Chunk = {"type": kind, "id": part_id}
    return {**chunk, "providerMetadata": SUPERSEDED} if supersedes else chunk


def _counts(part: UIPart) -> bool:
    """Return whether a part is a text that counts."""
    is_text = part.get("type") == "text" and isinstance(part.get("text"), str) and bool(part["text"])
    return is_text and part.get("providerMetadata") != SUPERSEDED
