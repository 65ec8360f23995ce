"""Declarations of the functions that a program may call, for the type check and for the model that writes it."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterable, Mapping
from typing import Final

from lash.agents.tools import Tool
from lash.model.value import JSON
from lash.runtime.steps.values import UNTYPED, json_schema, result_type

ASK: Final = "ask_human"
"""The function with which a program asks a person."""
CHECK: Final = "lash_check_only"
"""A call before the first line: a session that only checks types stops there."""
_HEADER: Final = f"""\
from typing import Any, Literal, NotRequired, TypedDict

def {ASK}(question: str, schema: dict[str, Any] | None = None, timeout_s: float | None = None) -> Any: ...
"""
_CHECK_STUB: Final = f"""\
def {CHECK}() -> None: ...
class ImportError(Exception): ...
class ModuleNotFoundError(ImportError): ...
class FileExistsError(OSError): ...
class FileNotFoundError(OSError): ...
class PermissionError(OSError): ...
class UnicodeDecodeError(ValueError): ...
"""
"""Errors that the sandbox has and its type checker does not know."""
_PLAIN: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def stubs_of(tools: Iterable[Tool], *, with_docs: bool = False) -> str:
    """Return the declarations of the functions of a program, with types as the program sees them: plain JSON."""
    types = _Types()
    functions = [_function(tool, types, with_docs=with_docs) for tool in tools]
    return "\n".join([_HEADER, *types.declared, *functions])


def check_stubs(stubs: str, inputs: Mapping[str, JSON]) -> str:
    """Return the declarations for a type check, with those of the inputs."""
    return "\n".join([stubs, _CHECK_STUB, *(f"{name}: {_type_of(value)}" for name, value in inputs.items())])


def _function(tool: Tool, types: _Types, *, with_docs: bool) -> str:
    properties, required = tool.spec.parameters.get("properties", {}), tool.spec.parameters.get("required", [])
    types.definitions = tool.spec.parameters.get("$defs", {})
    parameters = [
        f"{name}: {types.text(schema, f'{tool.name}_{name}')}{'' if name in required else ' = ...'}"
        for name, schema in properties.items()
    ]
    declared = result_type(tool.function)
    head = "async def" if inspect.iscoroutinefunction(tool.function) else "def"
    result = "Any" if declared is UNTYPED else types.of(declared, f"{tool.name}_result")
    signature = f"{head} {tool.name}({', '.join(parameters)}) -> {result}"
    doc = tool.spec.description.replace('"""', "'''") if with_docs else ""
    return f'{signature}:\n    """{doc}"""\n' if doc else f"{signature}: ...\n"


class _Types:
    """Writes JSON schemas as types; each object with known fields becomes a TypedDict."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.definitions: Mapping[str, JSON] = {}
        self._names: dict[str, str] = {}

    def of(self, declared: object, name: str) -> str:
        """Return the type of the JSON form of a declared type."""
        try:
            schema = json_schema(declared)
        except (TypeError, NotImplementedError):
            return "Any"
        self.definitions = schema.get("$defs", {})
        return self.text(schema, name)

    def text(self, schema: object, name: str) -> str:
        if not isinstance(schema, dict):
            return "Any"
        if isinstance(reference := schema.get("$ref"), str):
            target = reference.rpartition("/")[2]
            return self.text(self.definitions.get(target), _identifier(target))
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return f"Literal[{', '.join(map(repr, values))}]"
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return " | ".join(dict.fromkeys(self.text(each, name) for each in schema[union])) or "Any"
        if isinstance(kind := schema.get("type"), list):
            return " | ".join(self.text({**schema, "type": each}, name) for each in kind)
        if kind == "array":
            return f"list[{self.text(schema.get('items'), f'{name}_item')}]"
        return self._object(schema, name) if kind == "object" else _PLAIN.get(str(kind), "Any")

    def _object(self, schema: Mapping[str, JSON], name: str) -> str:
        fields = schema.get("properties")
        if not isinstance(fields, dict) or not fields or not all(_is_name(each) for each in fields):
            return f"dict[str, {self.text(schema.get('additionalProperties'), f'{name}_value')}]"
        if name not in self._names:
            # Before its fields, which may refer to it.
            self._names[name] = name
            required = schema.get("required")
            needed = required if isinstance(required, list) else []
            lines = [self._field(each, fields[each], f"{name}_{each}", is_needed=each in needed) for each in fields]
            self.declared.append("\n".join([f"class {name}(TypedDict):", *lines, ""]))
        return name

    def _field(self, field: str, schema: object, name: str, *, is_needed: bool) -> str:
        kind = self.text(schema, name)
        return f"    {field}: {kind}" if is_needed else f"    {field}: NotRequired[{kind}]"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _identifier(text: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in text) or "object_"


def _type_of(value: JSON) -> str:
    """Return the type of an input."""
    if isinstance(value, list):
        return "list[Any]"
    if isinstance(value, dict):
        return "dict[str, Any]"
    return "Any" if value is None else type(value).__name__
