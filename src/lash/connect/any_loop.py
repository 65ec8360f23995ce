"""Stores of a shared storage: the classes of ``lash.stores``, callable from any event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import typing
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Protocol, Self, get_args, get_origin

from lash.connect.link import SharedLink
from lash.stores.session import Session
from lash.stores.storage import Storage


class AnyLoop:
    """A store, or a part of one: a coroutine of it runs in the event loop of the storage, from any other loop."""

    def __init__(self, link: SharedLink, find: Callable[[Storage], Any]) -> None:
        """Build it for the object that ``find`` returns; ``find`` is called in the event loop of the storage."""
        self._link = link
        self._find = find

    def __repr__(self) -> str:
        return f"<shared {type(self).__name__}>"


class SharedSession(AnyLoop):
    """Knows its id without opening the storage."""

    def __init__(self, link: SharedLink, session_id: str) -> None:
        super().__init__(link, lambda storage: storage.session(session_id))
        self._session_id = session_id

    @property
    def session_id(self) -> str:
        return self._session_id


class SharedStorage(AnyLoop):
    """Stays open for the other users of the process when one of them leaves its ``async with`` block."""

    def __init__(self, link: SharedLink) -> None:
        super().__init__(link, lambda storage: storage)

    def session(self, session_id: str) -> AnyLoop:
        """Return a handle on one session, without checking that it exists and without opening the storage."""
        return session_class()(self._link, session_id)

    async def close(self) -> None:
        """Finish the calls in flight, and close the storage for the whole process. The next call opens it again."""
        await asyncio.to_thread(self._link.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def link_of(storage: SharedStorage) -> SharedLink:
    """Return the calls to a shared storage, for code that runs a whole coroutine in its event loop."""
    return storage._link  # noqa: SLF001 (its methods are those of every storage)


@functools.cache
def storage_class() -> type[SharedStorage]:
    """Return the class of a shared storage."""
    return _derive(Storage, SharedStorage)


@functools.cache
def session_class() -> type[SharedSession]:
    """Return the class of a session of a shared storage."""
    return _derive(Session, SharedSession)


@functools.cache
def any_loop_class(source: Hashable) -> type[AnyLoop]:
    """Return the class for a Protocol of ``lash.stores``."""
    assert isinstance(source, type), f"expected a class, got {source}"
    return _derive(source, AnyLoop)


def members(source: type[Any]) -> Iterator[tuple[str, object]]:
    """Return what a Protocol and its bases define."""
    for each in reversed(source.__mro__):
        if each not in (object, Protocol, Generic):
            yield from vars(each).items()


class _Made:
    """The object that a call without a wait has made in the event loop of the storage, or its error."""

    def __init__(self, make: Callable[[Storage], Any]) -> None:
        self._make = make
        self._value: Any = None
        self._error: Exception | None = None

    def make(self, storage: Storage) -> None:
        try:
            self._value = self._make(storage)
        except Exception as error:  # noqa: BLE001 (the next call of the object raises it)
            self._error = error

    def get(self, _storage: Storage) -> Any:  # noqa: ANN401 (any object)
        if self._error is not None:
            raise self._error
        return self._value


class _SharedContext:
    """A context manager of a store; its entry and exit wait for nothing, and later calls run after them."""

    def __init__(self, link: SharedLink, made: _Made, entered: Hashable) -> None:
        self._link = link
        self._made = made
        self._entered = entered

    def __enter__(self) -> AnyLoop:
        inside = _made(self._link, lambda storage: self._made.get(storage).__enter__())
        return any_loop_class(self._entered)(self._link, inside.get)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _made(self._link, lambda storage: self._made.get(storage).__exit__(None, None, None))


def _made(link: SharedLink, make: Callable[[Storage], Any]) -> _Made:
    made = _Made(make)
    link.send(made.make)
    return made


def _derive(source: type[Any], base: type[Any]) -> type[Any]:
    """Return a class with the public methods and properties of the source; what the base defines is kept."""
    namespace: dict[str, object] = {"__module__": base.__module__, "__doc__": source.__doc__}
    for name, member in members(source):
        if hasattr(base, name) and name not in ("__enter__", "__exit__"):
            continue
        if isinstance(member, property):
            namespace[name] = _property(name, member)
        elif inspect.iscoroutinefunction(member) and not name.startswith("_"):
            namespace[name] = _coroutine(name, member)
        elif inspect.isfunction(member) and (not name.startswith("_") or name in ("__enter__", "__exit__")):
            namespace[name] = _plain(name, member)
    return type(source.__name__, (base,), namespace)


def _property(name: str, member: property) -> property:
    assert member.fget is not None, "a Protocol has no property without a getter"
    returned = typing.get_type_hints(member.fget).get("return")

    def store(self: AnyLoop) -> AnyLoop:
        find = self._find
        return any_loop_class(returned)(self._link, lambda storage: getattr(find(storage), name))

    def value(self: AnyLoop) -> object:
        find = self._find
        return self._link.read(lambda storage: getattr(find(storage), name))

    return property(store if _is_store(returned) else value, doc=member.__doc__)


def _coroutine(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def method(self: AnyLoop, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the method)
        find = self._find
        return await self._link.run(lambda storage: getattr(find(storage), name)(*args, **kwargs))

    return method


def _plain(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that is not a coroutine: it blocks for a value, and does not wait for anything else."""
    returned = typing.get_type_hints(function).get("return")
    entered = get_args(returned)[0] if get_origin(returned) is AbstractContextManager else None

    @functools.wraps(function)
    def method(self: AnyLoop, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the method)
        link, find = self._link, self._find

        def call(storage: Storage) -> Any:  # noqa: ANN401 (what the method returns)
            return getattr(find(storage), name)(*args, **kwargs)

        if entered is not None:
            return _SharedContext(link, _made(link, call), entered)
        if returned is Self:
            _made(link, call)
            return self
        if _is_store(returned):
            return any_loop_class(returned)(link, _made(link, call).get)
        if returned is type(None):
            return link.send(call)
        return link.read(call)

    return method


def _is_store(returned: object) -> bool:
    """Return whether an annotation is a Protocol of ``lash.stores``, whose methods must run in the storage's loop."""
    return isinstance(returned, type) and bool(getattr(returned, "_is_protocol", False))
