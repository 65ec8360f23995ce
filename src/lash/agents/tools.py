"""Tools: functions that a model may call, with a JSON schema made of their type hints."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, overload

import msgspec

from lash.agents.vocabulary import ToolSpec
from lash.errors import (
    ClaimLost,
    ConfigError,
    EffectMismatch,
    InvalidInput,
    LeaseLost,
    OutcomeUnknown,
    SessionDeleted,
)
from lash.model.value import JSON, JSONObject, Value
from lash.runtime.engine import Engine
from lash.runtime.errors import STORAGE_TROUBLE, Permanent, error_code, error_text
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.steps.values import UNTYPED, from_json, json_schema, parameter_types
from lash.runtime.turns.turn import Turn

F = TypeVar("F", bound=Callable[..., object])

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that every provider accepts."""
NOT_THE_TOOLS: Final = (
    ClaimLost,
    ConfigError,
    EffectMismatch,
    LeaseLost,
    OutcomeUnknown,
    SessionDeleted,
    *STORAGE_TROUBLE,
)
"""Errors about the run or the database, which are no answer to a model."""


class ToolAnswer(Value, frozen=True, kw_only=True):
    """What the model is sent for one of its calls."""

    text: str
    failed: bool = False


class Tool:
    """A function that a model may call; `tool` makes one.

    Errors of its arguments and of the function are answers to the model. The database being away is not one: the turn
    is tried again.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *,
        name: str | None = None,
        description: str | None = None,
        needs_approval: bool = False,
        approval_timeout_s: float | None = None,
        once: bool = False,
        retry: Retry = NO_RETRY,
        timeout_s: float | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.function = function
        self.engine = engine
        """What the application that the agent is declared on closes when it stops."""
        self.name = getattr(function, "__name__", "") if name is None else name
        self.needs_approval = needs_approval
        self.approval_timeout_s = approval_timeout_s
        self.once = once
        self.retry = retry
        self.timeout_s = timeout_s
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"expected a tool name of letters, digits, _ and -, at most 64, got {self.name!r}")
        self.takes_turn = _takes_turn(function)
        if self.takes_turn and (once or timeout_s is not None or retry.max_attempts > 1):
            raise ConfigError(
                f"tool {self.name!r} takes a turn, so it is not one step: give once, retry and timeout_s to its steps"
            )
        self._arguments = _arguments_type(self)
        text = inspect.getdoc(function) if description is None else description
        self.spec = ToolSpec(name=self.name, description=text or "", parameters=_schema(self, self._arguments))

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the function)
        """Call the function itself, for example in a unit test."""
        return self.function(*args, **kwargs)

    def read(self, arguments: str) -> dict[str, object]:
        """Return the arguments of a call as what the function takes, or raise InvalidInput."""
        try:
            plain: JSON = msgspec.json.decode(arguments or "{}")
        except msgspec.DecodeError as error:
            raise InvalidInput(f"the arguments are not JSON: {error}") from None
        try:
            read = from_json(plain, self._arguments, "it")
        except InvalidInput as error:
            raise InvalidInput(f"the arguments do not fit: {str(error).partition(': ')[2]}") from None
        return {name: getattr(read, name) for name in self._arguments.__struct_fields__}

    async def answer(self, arguments: str, *, turn: Turn | None = None, is_last: bool = True) -> ToolAnswer:
        """Call the function and return the answer to the model; raise its error if another attempt follows."""
        try:
            given = self.read(arguments)
            async with contextlib.nullcontext() if self.timeout_s is None else asyncio.timeout(self.timeout_s):
                return ToolAnswer(text=_as_text(await self.call(given, turn)))
        except NOT_THE_TOOLS:
            raise
        except (InvalidInput, Permanent) as error:
            return failed(error)
        except Exception as error:
            if not is_last:
                raise
            return failed(error)

    async def call(self, given: dict[str, object], turn: Turn | None = None) -> object:
        """Call the function with arguments that `read` returned, and return its result."""
        if self.takes_turn:
            result = self.function(turn, **given)
        elif inspect.iscoroutinefunction(self.function):
            result = self.function(**given)
        else:
            # A plain function may block; the loop, which keeps the leases, must not.
            result = await asyncio.to_thread(self.function, **given)
        return await result if inspect.isawaitable(result) else result


@overload
def tool(function: F, /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool = False,
    approval_timeout_s: float | None = None,
    once: bool = False,
    retry: Retry = NO_RETRY,
    timeout_s: float | None = None,
) -> Callable[[F], Tool]: ...


def tool(function: Callable[..., object] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: its name, its docstring and its type hints are what the model sees.

    Each call is a step of the turn, recorded under the id of the call. ``needs_approval`` parks the turn until a person
    has decided; without a decision within ``approval_timeout_s`` the call is denied. ``once`` is for what must not
    happen twice; ``retry`` and ``timeout_s`` are those of a step. ``Annotated[str, "text"]`` describes an argument.

    A tool whose first parameter is a `lash.Turn` gets the turn and is not a step itself: it can take steps, wait, and
    ask other agents.
    """
    return (lambda given: Tool(given, **options)) if function is None else Tool(function, **options)


def as_tool(given: Tool | Callable[..., object]) -> Tool:
    return given if isinstance(given, Tool) else Tool(given)


def failed(error: BaseException) -> ToolAnswer:
    """Return the answer to the model about an error."""
    return ToolAnswer(text=f"{error_code(error)}: {error_text(error)}", failed=True)


def _takes_turn(function: Callable[..., object]) -> bool:
    types = parameter_types(function, skip=0)
    return bool(types) and next(iter(types.values())) is Turn


def _arguments_type(tool: Tool) -> type[msgspec.Struct]:
    """Return a struct with the parameters of the tool's function."""
    skip = 1 if tool.takes_turn else 0
    types = parameter_types(tool.function, skip=skip)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in list(inspect.signature(tool.function).parameters.values())[skip:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"tool {tool.name!r} gets its arguments by name, and takes {parameter}")
        declared = types[parameter.name]
        if declared is UNTYPED:
            raise ConfigError(f"tool {tool.name!r}: declare the type of {parameter.name!r}")
        known = _described(declared)
        fields.append(
            (parameter.name, known)
            if parameter.default is parameter.empty
            else (parameter.name, known, _default(parameter))
        )
    return msgspec.defstruct(tool.name, fields, kw_only=True, forbid_unknown_fields=True)


def _default(parameter: inspect.Parameter) -> Any:  # noqa: ANN401 (any value)
    value = parameter.default
    # msgspec takes only frozen values and empty collections as defaults.
    return msgspec.field(default_factory=lambda: value) if isinstance(value, list | dict | set) else value


def _described(declared: object) -> object:
    """Return a type whose descriptions are those of msgspec: ``Annotated[str, "text"]``."""
    if get_origin(declared) is not Annotated:
        return declared
    inner, *notes = get_args(declared)
    metas = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    return Annotated[(inner, *metas)]


def _schema(tool: Tool, arguments: type[msgspec.Struct]) -> JSONObject:
    try:
        return object_schema(arguments)
    except (TypeError, NotImplementedError) as error:
        raise ConfigError(f"tool {tool.name!r}: its arguments have no JSON schema: {error}") from None


def object_schema(declared: object) -> JSONObject:
    """Return the JSON schema of a type with its own properties at the top, as providers expect it."""
    whole = json_schema(declared)
    named: JSONObject = {}
    _lift_definitions(whole, named)
    reference = whole.get("$ref")
    if isinstance(reference, str):
        top = reference.rpartition("/")[2]
        whole = dict(named[top])
        if f'"{reference}"' not in msgspec.json.encode([whole, named]).decode():
            named.pop(top)
    whole.pop("title", None)
    return {**whole, "$defs": named} if named else whole


def _lift_definitions(schema: object, named: JSONObject) -> None:
    """Move nested definitions, such as those of pydantic models, to where their references point."""
    if isinstance(schema, dict):
        nested = schema.pop("$defs", {})
        named |= nested
        for each in [*schema.values(), *nested.values()]:
            _lift_definitions(each, named)
    elif isinstance(schema, list):
        for each in schema:
            _lift_definitions(each, named)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=_encode_model).decode()


def _encode_model(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"the result of type {type(value).__qualname__} is not JSON; return text or plain JSON")
    return dump(mode="json", by_alias=True)
