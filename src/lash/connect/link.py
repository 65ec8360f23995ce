"""The one storage that a process shares for a URL: opened by its first call, in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from lash.base.in_place import new_loop
from lash.base.portal import Portal
from lash.connect.open import OpenOptions, open_storage
from lash.errors import ConfigError, StorageClosed
from lash.stores.storage import Storage

T = TypeVar("T")


class SharedLink:
    """Calls to the storage of one URL, from any thread and any event loop of this process.

    The first call opens the storage, and so does the first call after `close`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._options = OpenOptions()
        self._guard = threading.Lock()
        self._home: _Home | None = None
        self._process: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether a call has begun to open the storage."""
        return self._home is not None

    @property
    def is_inside(self) -> bool:
        """Whether the caller is code that runs in the event loop of the storage."""
        return self._home is not None and self._home.portal.is_inside

    def configure(self, options: OpenOptions) -> None:
        """Set the options to open the storage with; raise ConfigError if it has others or is open."""
        with self._guard:
            if not options or options == self._options:
                return
            if self._options or self._home is not None:
                raise ConfigError(
                    "this storage is shared with other options; pass options once, in the first lash.shared() of a URL"
                )
            self._options = options

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (what it returns)
        """Call the function in the event loop of the storage, and block until it has ended."""
        return self._start().portal.call(function, *args, **kwargs)

    def block(self, use: Callable[[Storage], Awaitable[T]]) -> T:
        """Return the result of a call of the open storage, blocking the thread until it has ended."""
        home = self._start()
        value: T = home.portal.call(_use, home.storage, use)
        return value

    def read(self, read: Callable[[Storage], T]) -> T:
        """Return what a plain function reads from the open storage; blocks until then."""
        home = self._start()
        if home.portal.is_inside:
            return read(home.storage.require())
        value: T = home.portal.call(_read, home.storage, read)
        return value

    async def run(self, use: Callable[[Storage], Awaitable[T]], *, may_block: bool = False) -> T:
        """Return the result of a call of the open storage.

        With ``may_block``, it always runs in the storage's own thread: the caller's event loop must not wait for it.
        """
        home = self._start()
        if home.portal.is_inside:
            return await _use(home.storage, use)
        _check_event_loop()
        # Opening takes long.
        may_block = may_block or home.storage.opened is None
        await_call = home.portal.await_call if may_block else home.portal.await_in_place
        value: T = await await_call(_use, home.storage, use)
        return value

    def send(self, use: Callable[[Storage], object]) -> None:
        """Call a plain function with the open storage, without waiting for it; later calls run after it."""
        home = self._start()
        if home.portal.is_inside and home.storage.opened is not None:
            use(home.storage.opened)
        else:
            home.portal.send(lambda: home.storage.use_in_order(use))

    def close(self) -> None:
        """Finish the calls in flight, close the storage and end its thread; the next call opens it again."""
        if self._process != os.getpid():
            return
        with self._guard:
            home, self._home, self._process = self._home, None, None
        if home is not None:
            home.portal.end(home.storage.close)

    def _start(self) -> _Home:
        # Before the lock: a thread of the parent may have held it when the process forked.
        if self._process not in (None, os.getpid()):
            raise ConfigError(
                "this storage was opened before the process forked; fork before the first call, or start the child "
                "with the 'spawn' or 'forkserver' method"
            )
        return self._home or self._start_first()

    def _start_first(self) -> _Home:
        with self._guard:
            if self._home is None:
                portal, storage = Portal("lash-shared", new_loop=new_loop), LazyStorage(self.url, self._options)
                portal.open()
                portal.guard(storage.close)
                self._home, self._process = _Home(portal, storage), os.getpid()
            return self._home


class _Home(NamedTuple):
    """A storage and the thread that it lives in."""

    portal: Portal
    storage: LazyStorage


class LazyStorage:
    """A storage that its first use opens; everything here runs in its event loop."""

    def __init__(self, url: str, options: OpenOptions) -> None:
        self.opened: Storage | None = None
        self._url = url
        self._options = options
        self._opening: asyncio.Task[Storage] | None = None
        self._closed = False
        self._waiting: list[Callable[[Storage], object]] = []

    def require(self) -> Storage:
        if self.opened is None:
            raise StorageClosed
        return self.opened

    async def open(self) -> Storage:
        """Return the open storage. Callers that come while it is being opened share the opening, and its error."""
        if self.opened is not None:
            return self.opened
        if self._closed:
            raise StorageClosed
        return await asyncio.shield(self._begin_opening())

    def use_in_order(self, use: Callable[[Storage], object]) -> None:
        """Use the storage now or, while it is being opened, before the calls that come after this one."""
        if self.opened is not None:
            use(self.opened)
        elif not self._closed:
            context = contextvars.copy_context()
            self._waiting.append(lambda storage: context.run(use, storage))
            # The next call raises the error of an opening that failed.
            self._begin_opening().add_done_callback(_retrieve_error)

    async def close(self) -> None:
        """Close the storage, also if it is still being opened."""
        self._closed = True
        if self._opening is not None:
            await asyncio.wait({self._opening})
        opened, self.opened = self.opened, None
        if opened is not None:
            await opened.close()

    def _begin_opening(self) -> asyncio.Task[Storage]:
        if self._opening is None:
            # The tasks of the storage must not carry the context variables of its first caller.
            self._opening = asyncio.get_running_loop().create_task(self._open(), context=contextvars.Context())
        return self._opening

    async def _open(self) -> Storage:
        try:
            storage = await open_storage(self._url, **self._options)
        finally:
            self._opening = None
        # No call sees the storage before these have run: a listener exists before it is asked for a hint.
        waiting, self._waiting = self._waiting, []
        for use in waiting:
            _use_and_report(use, storage)
        self.opened = storage
        return storage


def _use_and_report(use: Callable[[Storage], object], storage: Storage) -> None:
    """Use the storage for a caller that has gone on; the event loop reports an error, as that of any callback."""
    try:
        use(storage)
    except Exception as error:  # noqa: BLE001 (one use must not spoil the opening for all others)
        message = "a call of a shared storage failed after its caller had gone on"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def _retrieve_error(opening: asyncio.Task[Storage]) -> None:
    if not opening.cancelled():
        opening.exception()


async def _use(storage: LazyStorage, use: Callable[[Storage], Awaitable[T]]) -> T:
    return await use(storage.opened or await storage.open())


async def _read(storage: LazyStorage, read: Callable[[Storage], T]) -> T:
    return read(storage.opened or await storage.open())


def _check_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            "expected a running asyncio event loop, got none; use lash.sync.shared() in plain threads, and in a thread "
            "of trio: trio.to_thread.run_sync"
        ) from None
