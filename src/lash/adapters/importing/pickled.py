"""Data out of pickles, without running them.

Old databases of ADK hold pickled models. Python's own reader imports the classes that a pickle names and calls them,
which runs whatever the pickle says. This one knows the operations that build data. An object of a class that may occur
becomes its fields; any other class is an error.
"""

from __future__ import annotations

import base64
import pickletools
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from typing import Any, Final, TypeAlias
from uuid import UUID


class NotPlainData(Exception):
    """The pickle holds something that is not data, or is damaged; the text is the reason."""


class _Mark:
    """The beginning of the members of a container, on the stack."""


class _Named:
    """A class, or an object of one: the arguments and the state with which it would be built."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name
        self.arguments: tuple[Any, ...] = ()
        self.state: Any = None

    def called(self, arguments: object) -> object:
        """Return the object that the class makes of arguments, as far as it is data."""
        if not isinstance(arguments, tuple):
            raise NotPlainData("damaged: arguments that are not a tuple")
        if (self.module, self.name) in _EMPTY:
            return {}
        made = _Named(self.module, self.name)
        made.arguments = arguments
        return made


_Time: TypeAlias = datetime | date | time | timedelta | timezone
_EMPTY: Final = frozenset({("collections", "OrderedDict"), ("collections", "defaultdict")})
"""Dictionaries whose members follow."""
_MODELS: Final = ("google.adk.", "google.genai.", "fastapi.openapi.")
"""Where the classes of models and enumerations are."""
_TIMES: Final[dict[str, Callable[..., _Time]]] = {
    "datetime": datetime,
    "date": date,
    "time": time,
    "timedelta": timedelta,
    "timezone": timezone,
}
_MAX_DEPTH: Final = 200
_Operation = Callable[["_Reader", Any], None]


def plain_data(content: object) -> object:
    """Return what a pickle holds as values of JSON; models become objects without the fields that are None.

    Raises NotPlainData.
    """
    if not isinstance(content, bytes):
        raise NotPlainData("it is not a pickle")
    try:
        return _plain(_Reader().read(content), 0)
    except NotPlainData:
        raise
    except Exception as error:
        raise NotPlainData(f"damaged: {error}") from error


class _Reader:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self, content: bytes) -> object:
        for code, argument, _ in pickletools.genops(content):
            if code.name == "STOP":
                return self.stack.pop()
            if code.name in _PUSHED:
                self.stack.append(argument)
                continue
            operation = _OPERATIONS.get(code.name)
            if operation is None:
                raise NotPlainData(f"the operation {code.name} does not build data")
            operation(self, argument)
        raise NotPlainData("damaged: it has no end")

    def members(self) -> list[Any]:
        """Return what was pushed since the last mark."""
        place = max(index for index, each in enumerate(self.stack) if isinstance(each, _Mark))
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found

    def push_class(self, module: object, name: object) -> None:
        self.stack.append(_Named(str(module), str(name)))

    def stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.push_class(module, name)

    def call(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        if not isinstance(called, _Named):
            raise NotPlainData("damaged: a call of a value")
        self.stack.append(called.called(arguments))

    def build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Named):
            raise NotPlainData("damaged: a state for a value")
        self.stack[-1].state = state

    def append(self, members: list[Any]) -> None:
        """Extend a list or a set; a set is a list here, since its members need not be hashable."""
        self.stack[-1].extend(members)

    def set_items(self, members: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise NotPlainData("damaged: keys for a value that is not a dictionary")
        for place in range(0, len(members), 2):
            target[members[place]] = members[place + 1]

    def pair(self) -> list[Any]:
        value, key = self.stack.pop(), self.stack.pop()
        return [key, value]

    def take(self, count: int) -> tuple[Any, ...]:
        taken = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return taken

    def dictionary(self, members: list[Any]) -> dict[Any, Any]:
        return {members[place]: members[place + 1] for place in range(0, len(members), 2)}


_PUSHED: Final = frozenset(
    {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
    | {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"}
    | {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
)
"""Operations whose argument is the value."""
_OPERATIONS: Final[dict[str, _Operation]] = {
    "PROTO": lambda _reader, _argument: None,
    "FRAME": lambda _reader, _argument: None,
    "NONE": lambda reader, _: reader.stack.append(None),
    "NEWTRUE": lambda reader, _: reader.stack.append(True),
    "NEWFALSE": lambda reader, _: reader.stack.append(False),
    "MARK": lambda reader, _: reader.stack.append(_Mark()),
    "POP": lambda reader, _: reader.stack.pop(),
    "POP_MARK": lambda reader, _: reader.members().clear(),
    "DUP": lambda reader, _: reader.stack.append(reader.stack[-1]),
    "MEMOIZE": lambda reader, _: reader.memo.update({len(reader.memo): reader.stack[-1]}),
    **dict.fromkeys(
        ("PUT", "BINPUT", "LONG_BINPUT"), lambda reader, place: reader.memo.update({place: reader.stack[-1]})
    ),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda reader, place: reader.stack.append(reader.memo[place])),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda reader, _: reader.stack.append([])),
    **dict.fromkeys(("LIST", "FROZENSET"), lambda reader, _: reader.stack.append(reader.members())),
    "EMPTY_DICT": lambda reader, _: reader.stack.append({}),
    "DICT": lambda reader, _: reader.stack.append(reader.dictionary(reader.members())),
    "EMPTY_TUPLE": lambda reader, _: reader.stack.append(()),
    "TUPLE": lambda reader, _: reader.stack.append(tuple(reader.members())),
    "TUPLE1": lambda reader, _: reader.stack.append(reader.take(1)),
    "TUPLE2": lambda reader, _: reader.stack.append(reader.take(2)),
    "TUPLE3": lambda reader, _: reader.stack.append(reader.take(3)),
    "APPEND": lambda reader, _: reader.append([reader.stack.pop()]),
    "APPENDS": lambda reader, _: reader.append(reader.members()),
    "ADDITEMS": lambda reader, _: reader.append(reader.members()),
    "SETITEM": lambda reader, _: reader.set_items(reader.pair()),
    "SETITEMS": lambda reader, _: reader.set_items(reader.members()),
    "GLOBAL": lambda reader, named: reader.push_class(*named.split(" ", 1)),
    "STACK_GLOBAL": lambda reader, _: reader.stack_global(),
    "NEWOBJ": lambda reader, _: reader.call(),
    "REDUCE": lambda reader, _: reader.call(),
    "BUILD": lambda reader, _: reader.build(),
}


def _plain(value: object, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise NotPlainData("it is nested too deep")
    if isinstance(value, dict):
        return {str(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, bytes | bytearray):
        return base64.urlsafe_b64encode(value).decode()
    if isinstance(value, _Named):
        return _plain_object(value, depth)
    return value


def _plain_object(made: _Named, depth: int) -> object:
    if made.module.startswith(_MODELS):
        if made.state is None and len(made.arguments) == 1:
            # A member of an enumeration is built from its value.
            return _plain(made.arguments[0], depth + 1)
        fields = {**made.state["__dict__"], **(made.state.get("__pydantic_extra__") or {})}
        return {str(name): _plain(each, depth + 1) for name, each in fields.items() if each is not None}
    if made.module == "datetime":
        moment = _time(made, depth)
        return str(moment) if isinstance(moment, timedelta | timezone) else moment.isoformat()
    if (made.module, made.name) == ("uuid", "UUID"):
        return str(UUID(int=made.state["int"]))
    if (made.module, made.name) == ("decimal", "Decimal"):
        return str(made.arguments[0])
    raise NotPlainData(f"it holds an object of {made.module}.{made.name}, which is not a class of ADK's events")


def _time(made: _Named, depth: int) -> _Time:
    """Return a time; its arguments are the bytes of its own pickle format, numbers, and a time zone."""
    arguments = [_time(each, depth + 1) if isinstance(each, _Named) else each for each in made.arguments]
    if depth > _MAX_DEPTH or made.name not in _TIMES:
        raise NotPlainData(f"it holds an object of datetime.{made.name}")
    return _TIMES[made.name](*arguments)
