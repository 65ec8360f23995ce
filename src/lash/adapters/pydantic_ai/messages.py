"""Messages of pydantic-ai as messages of a session, and back, without loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from lash.base.shapes import convert
from lash.model.session.message import Message, Part, PartKind, Role, ToolReplay
from lash.model.value import JSONObject
from lash.runtime.turns.messages import text_of

FORM: Final = "pydantic_ai"
"""The key, in the opaque form of a part, of what pydantic-ai needs beside the text that people read."""
_SHOWN: Final = {
    "text": ("content", PartKind.PROSE),
    "thinking": ("content", PartKind.REASONING),
    "tool-call": ("args", PartKind.TOOL_CALL),
    "tool-return": ("content", PartKind.TOOL_RESULT),
    "retry-prompt": ("content", PartKind.ERROR),
    "retry-feedback": ("content", PartKind.ERROR),
    "user-prompt": ("content", PartKind.TEXT),
    "system-prompt": ("content", PartKind.TEXT),
}
"""Where the text of each kind of part stands, and as what people see it. It is stored once."""


class _Form(msgspec.Struct, omit_defaults=True):
    """What is stored beside the text of a part. The first part has the fields of its message too."""

    part: JSONObject | None = None
    """The other fields of the part."""
    text_in: str | None = None
    """The field that the text of the part belongs into."""
    is_json: bool = False
    """Whether the text is that field as JSON."""
    message: JSONObject | None = None
    """The fields of the message."""
    before: list[JSONObject] = []
    """Messages before this one that people do not read, such as a request that only repeats the input."""
    covers: list[str] = []
    """The messages of the session that ``before`` contains already."""


def to_lash(messages: Sequence[ModelMessage], message_id: str) -> list[Message]:
    """Return messages of a session for messages of pydantic-ai; their ids begin with the given one."""
    dumped: list[JSONObject] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return [_message(each, f"{message_id}.{number}") for number, each in enumerate(dumped)]


def from_lash(messages: Iterable[Message]) -> list[ModelMessage]:
    """Return messages of a session as messages of pydantic-ai. Those of other authors come with their text."""
    listed = list(messages)
    forms = {id(message): form for message in listed if (form := _form_of(message)) is not None}
    covered = {message_id for form in forms.values() for message_id in form.covers}
    plain: list[JSONObject] = []
    found: list[ModelMessage] = []
    for message in listed:
        form = forms.get(id(message))
        if form is not None:
            plain += [*form.before, *_restored(message, form)]
        elif message.id not in covered:
            found += [*_validated(plain), *_of_others(message)]
            plain = []
    return [*found, *_validated(plain)]


def covering(message: Message, before: Sequence[ModelMessage], covers: Sequence[str]) -> Message:
    """Return a message that carries messages before it, which contain some messages of the session."""
    form = _form_of(message) or _Form()
    dumped: list[JSONObject] = ModelMessagesTypeAdapter.dump_python(list(before), mode="json")
    form = msgspec.structs.replace(form, before=dumped, covers=list(covers))
    first, *rest = message.parts
    return msgspec.structs.replace(message, parts=(_with_form(first, form), *rest))


def as_reply(text: str, messages: Sequence[ModelMessage], message_id: str) -> Message:
    """Return a message with the text of a reply that carries these messages."""
    part = Part(id=f"{message_id}:0", kind=PartKind.PROSE, content=text)
    message = Message(id=message_id, role=Role.ASSISTANT, parts=(part,))
    return covering(message, messages, ())


def _message(dumped: JSONObject, message_id: str) -> Message:
    parts: list[JSONObject] = dumped["parts"]
    role = Role.ASSISTANT if dumped["kind"] == "response" else _role(parts)
    fields = {name: value for name, value in dumped.items() if name != "parts"}
    shown = [_part(part, f"{message_id}:{number}") for number, part in enumerate(parts)]
    if not shown:
        # A message without parts, as of a model that said nothing.
        shown = [(Part(id=f"{message_id}:0", kind=PartKind.TEXT, content=""), _Form())]
    first, form = shown[0]
    form.message = fields
    return Message(
        id=message_id,
        role=role,
        parts=(_with_form(first, form), *(_with_form(part, each) for part, each in shown[1:])),
    )


def _role(parts: Sequence[JSONObject]) -> Role:
    """Return who people take as the author of a request: results of tools stand with the calls."""
    kinds = {part["part_kind"] for part in parts}
    if "user-prompt" in kinds:
        return Role.USER
    return Role.SYSTEM if kinds == {"system-prompt"} else Role.ASSISTANT


def _part(dumped: JSONObject, part_id: str) -> tuple[Part, _Form]:
    field, kind = _SHOWN.get(dumped["part_kind"], ("", PartKind.OUTPUT))
    form = _Form(part=dumped)
    content = ""
    value = dumped.get(field)
    if isinstance(value, str):
        content = value
        form.part, form.text_in = _without(dumped, field), field
    elif dumped["part_kind"] == "user-prompt" and isinstance(value, list):
        # Files stay in the form; people read the text between them.
        content = "\n".join(each for each in value if isinstance(each, str))
    elif value is not None:
        content = msgspec.json.encode(value).decode()
        form.part, form.text_in, form.is_json = _without(dumped, field), field, True
    part = Part(
        id=part_id,
        kind=kind,
        content=content,
        tool_call_id=dumped.get("tool_call_id"),
        tool_name=dumped.get("tool_name"),
    )
    return part, form


def _without(dumped: JSONObject, field: str) -> JSONObject:
    return {name: value for name, value in dumped.items() if name != field}


def _with_form(part: Part, form: _Form) -> Part:
    opaque: JSONObject = {FORM: msgspec.to_builtins(form)}
    return msgspec.structs.replace(part, tool_replay=ToolReplay(opaque=opaque))


def _form_of(message: Message) -> _Form | None:
    return _part_form(message.parts[0]) if message.parts else None


def _part_form(part: Part) -> _Form | None:
    opaque = None if part.tool_replay is None else part.tool_replay.opaque
    if not isinstance(opaque, dict) or FORM not in opaque:
        return None
    return convert(opaque[FORM], _Form)


def _restored(message: Message, form: _Form) -> list[JSONObject]:
    if form.message is None:
        return []
    parts: list[JSONObject] = []
    for part in message.parts:
        each = _part_form(part)
        if each is None or each.part is None:
            continue
        value: Any = msgspec.json.decode(part.content) if each.is_json else part.content
        parts.append(each.part if each.text_in is None else {**each.part, each.text_in: value})
    return [{**form.message, "parts": parts}]


def _validated(plain: list[JSONObject]) -> list[ModelMessage]:
    return ModelMessagesTypeAdapter.validate_python(plain) if plain else []


def _of_others(message: Message) -> list[ModelMessage]:
    """Return a message that pydantic-ai did not make: of a user, of another agent, of a process."""
    if message.role is not Role.ASSISTANT:
        text = text_of(message)
        return [ModelRequest(parts=[UserPromptPart(text)])] if text else []
    said = [found for part in message.parts if (found := _said(part)) is not None]
    returned = [
        ToolReturnPart(tool_name=part.tool_name or "tool", content=part.content, tool_call_id=part.tool_call_id or "")
        for part in message.parts
        if part.kind is PartKind.TOOL_RESULT
    ]
    answer: list[ModelMessage] = [ModelResponse(parts=said)] if said else []
    return [*answer, ModelRequest(parts=returned)] if returned else answer


def _said(part: Part) -> TextPart | ToolCallPart | None:
    if part.kind is PartKind.TOOL_CALL:
        return ToolCallPart(part.tool_name or "tool", part.content, part.tool_call_id or "")
    is_text = part.kind in (PartKind.TEXT, PartKind.PROSE) and part.content
    return TextPart(part.content) if is_text else None
