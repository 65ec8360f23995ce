"""Blocking classes, derived from the async ones on first use."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

from lash.base.portal import Caller
from lash.connect.any_loop import members
from lash.sync.interfaces import INTERFACES
from lash.sync.stream import Stream

_AS_PLAIN: Final = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__enter__": "__enter__",
    "__exit__": "__exit__",
}
_ALTERNATIVE: Final = re.compile(r"(?:^|\| )([A-Za-z_]\w*)")


class Blocking:
    """An async object, used from any thread: each call waits for the result from the object's own event loop."""

    __slots__ = ("__weakref__", "_portal", "_target")

    def __init__(self, portal: Caller, target: Any) -> None:  # noqa: ANN401 (any async object)
        self._portal = portal
        self._target = target

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in vars(self._target) if not name.startswith("_"))})

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (the attributes of any object)
        """Return a public attribute of the object, such as its id."""
        if name.startswith("_") or inspect.ismethod(value := getattr(self._target, name)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return value

    def _enter(self) -> Self:
        """Enter the object if it can be entered; the way out is its own."""
        enter = getattr(self._target, "__aenter__", None) or self._target.__enter__
        self._portal.call(enter)
        return self

    def _exit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        leave = getattr(self._target, "__aexit__", None) or self._target.__exit__
        swallowed: bool | None = self._portal.call(leave, kind, error, trace)
        return swallowed


@functools.cache
def blocking(name: str) -> type[Blocking]:
    """Return the blocking class of an async one, by its name."""
    return derive(getattr(import_module(INTERFACES[name]), name))


def derive(source: type[Any], base: type[Blocking] = Blocking) -> type[Blocking]:
    """Return a class with the public methods and properties of the source, blocking, on top of a base.

    Attributes defined by the base are kept.
    """
    namespace: dict[str, object] = {"__slots__": (), "__module__": "lash.sync", "__doc__": plain_text(source.__doc__)}
    for name, member in members(source):
        if name in _AS_PLAIN:
            plain = _AS_PLAIN[name]
            if not hasattr(base, plain):
                namespace[plain] = Blocking._enter if plain == "__enter__" else Blocking._exit  # noqa: SLF001 (ours)
        elif name.startswith("_") or hasattr(base, name):
            continue
        elif isinstance(member, property):
            namespace[name] = _property(name, member)
        elif inspect.isfunction(member):
            namespace[name] = _method(name, member)
    if getattr(source, "__parameters__", ()):
        namespace["__class_getitem__"] = classmethod(_any_parameters)
    return type(source.__name__, (base,), namespace)


def wrap(portal: Caller, value: Any, kind: str | None) -> Any:  # noqa: ANN401 (values of all kinds pass)
    """Return what a blocking call returns for an async value; plain values are unchanged."""
    if value is None:
        return None
    if kind is not None:
        return blocking(kind)(portal, value)
    return Stream(portal, value) if hasattr(value, "__anext__") else value


def _property(name: str, member: property) -> property:
    kind = _returned(member.fget)

    def read(self: Blocking) -> Any:  # noqa: ANN401 (whatever the property is)
        return wrap(self._portal, getattr(self._target, name), kind)

    return property(read, doc=plain_text(member.__doc__))


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    kind = _returned(function)
    waits = inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    def method(self: Blocking, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the method)
        portal, call = self._portal, getattr(self._target, name)
        if waits or (portal.is_open and not portal.is_inside):
            return wrap(portal, portal.call(call, *args, **kwargs), kind)
        # Before the loop, or within it: nothing waits.
        return wrap(portal, call(*args, **kwargs), kind)

    method.__doc__ = plain_text(function.__doc__)
    return method


def plain_text(text: str | None) -> str | None:
    """Return the docstring of an async class in its blocking form."""
    return None if text is None else text.replace("async with", "with").replace("`await ", "`")


def _returned(function: Callable[..., Any] | None) -> str | None:
    """Return the name of the async class in a function's return annotation, if any."""
    declared = str(getattr(function, "__annotations__", {}).get("return", ""))
    return next((name for name in _ALTERNATIVE.findall(declared) if name in INTERFACES), None)


def _any_parameters(cls: type[Blocking], _parameters: object) -> type[Blocking]:
    """Let ``ProcessHandle[int]`` stand in annotations that are read at run time."""
    return cls
