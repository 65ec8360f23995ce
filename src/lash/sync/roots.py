"""Objects with a thread of their own: an application, and an opened storage."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self, Unpack

from lash.base.portal import Portal
from lash.connect.link import SharedLink
from lash.connect.open import OpenOptions, open_storage
from lash.connect.shared import shared, shared_link
from lash.errors import ConfigError, LashError
from lash.runtime.app import App as AsyncApp
from lash.stores.storage import Storage as AsyncStorage
from lash.sync.proxy import Blocking, blocking, derive


class Opened(Blocking):
    """Closes the thread with the storage."""

    __slots__ = ()
    _portal: Portal

    def close(self) -> None:
        """Finish accepted calls, close the storage, and end the thread. Idempotent."""
        self._portal.end(self._target.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Shared(Blocking):
    """Leaves the storage open for the other users of the process."""

    __slots__ = ()
    _portal: SharedLink

    def close(self) -> None:
        """Finish the calls in flight, and close the storage for the whole process. The next call opens it again."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Living(Blocking):
    """Starts the thread with the application and ends it with it."""

    __slots__ = ()
    _portal: Portal

    def __init__(self, url: str | AsyncApp, **options: Any) -> None:  # noqa: ANN401 (what the async App takes)
        if isinstance(url, AsyncApp) and options:
            raise ConfigError(f"unexpected option {next(iter(options))!r}: the app that is given has its options")
        app = url if isinstance(url, AsyncApp) else AsyncApp(url, **options)
        super().__init__(Portal("lash-app", _not_running), app)

    def open(self) -> None:
        """Open the storage and start the worker. ``with app`` calls it; on an open app it does nothing."""
        is_first = self._portal.open()
        try:
            self._portal.call(self._target.open)
            if is_first:
                self._portal.guard(self._target.stop)
        except BaseException:
            if is_first:
                self._portal.close()
            raise

    def stop(self) -> None:
        """Let running work finish or release it, close the storage, and end the thread. Idempotent."""
        self._portal.end(self._target.stop)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


App: Final = derive(AsyncApp, Living)
_OpenedStorage: Final = type("Storage", (Opened, blocking("Storage")), {"__slots__": (), "__module__": "lash.sync"})
_SharedStorage: Final = type("Storage", (Shared, blocking("Storage")), {"__slots__": (), "__module__": "lash.sync"})


def open_blocking(url: str, **options: Any) -> Any:  # noqa: ANN401 (the stub says it)
    """Open a storage for blocking use; it takes what `lash.open` takes. It is closed by ``with`` or by ``close``."""
    portal = Portal("lash-storage")
    portal.open()
    try:
        storage: AsyncStorage = portal.call(open_storage, url, **options)
        portal.guard(storage.close)
    except BaseException:
        portal.close()
        raise
    return _OpenedStorage(portal, storage)


def shared_blocking(url: str, **options: Unpack[OpenOptions]) -> Any:  # noqa: ANN401 (the stub says it)
    """Return the storage of `lash.shared` for blocking use: one per process and URL, from any plain thread."""
    return _SharedStorage(shared_link(url, options), shared(url, **options))


def _not_running() -> LashError:
    return ConfigError("the app is not open; use `with app:` or `app.open()` first")
