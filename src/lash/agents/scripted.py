"""A model for tests: it replies with what a script says, and keeps the requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias

import msgspec

from lash.agents.vocabulary import ModelReply, ModelRequest, Piece, ToolCall
from lash.errors import InvalidInput
from lash.model.session.usage import TokenUsage
from lash.model.value import JSON

Line: TypeAlias = "str | ToolCall | Sequence[str | ToolCall] | ModelReply | Exception | Callable[[ModelRequest], Line]"


def call(name: str, /, **arguments: JSON) -> ToolCall:
    """Return the call of a tool for a script; its id is made of its place."""
    return ToolCall(id="", name=name, arguments=msgspec.json.encode(arguments).decode())


class ScriptedModel:
    """Replies with one line of its script after the other, without a network.

    A line is a text, a `call` or several of both, a whole `ModelReply`, an error to raise, or a function from the
    request to one of these. Texts are streamed word by word. ``requests`` holds what the model was asked.
    """

    def __init__(self, *lines: Line, name: str = "scripted", usage: TokenUsage | None = None) -> None:
        self.requests: list[ModelRequest] = []
        self._lines = lines
        self._name = name
        self._usage = usage or TokenUsage(input_tokens=1, output_tokens=1)

    async def __call__(self, request: ModelRequest) -> AsyncIterator[Piece | ModelReply]:
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._lines):
            raise InvalidInput(f"the script has {len(self._lines)} lines, and the model was called once more")
        line = self._lines[number]
        while callable(line) and not isinstance(line, Exception):
            line = line(request)
        if isinstance(line, Exception):
            raise line
        reply = self._reply(line, number + 1)
        for word in reply.text.split(" ") if reply.text else ():
            yield word if word is reply.text else f"{word} "
        yield reply

    def _reply(self, line: str | ToolCall | Sequence[str | ToolCall] | ModelReply, number: int) -> ModelReply:
        if isinstance(line, ModelReply):
            return line
        content = (line,) if isinstance(line, str | ToolCall) else tuple(line)
        named = [
            msgspec.structs.replace(each, id=f"call-{number}.{index}")
            if isinstance(each, ToolCall) and not each.id
            else each
            for index, each in enumerate(content, 1)
        ]
        return ModelReply.of(*named, model=self._name, usage=self._usage)
