"""Objects with a thread of their own: an application, and an opened storage."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

from lash.connect.open import open_storage
from lash.errors import ConfigError, LashError
from lash.runtime.app import App as AsyncApp
from lash.stores.storage import Storage as AsyncStorage
from lash.sync.portal import Portal
from lash.sync.proxy import Blocking, blocking, derive


class Opened(Blocking):
    """Closes the thread with the storage."""

    __slots__ = ()

    def close(self) -> None:
        """Finish accepted calls, close the storage, and end the thread. Idempotent."""
        self._portal.end(self._target.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Living(Blocking):
    """Starts the thread with the application and ends it with it."""

    __slots__ = ()

    def __init__(self, url: str, **options: Any) -> None:  # noqa: ANN401 (what the async App takes)
        super().__init__(Portal("lash-app", _not_running), AsyncApp(url, **options))

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


def _not_running() -> LashError:
    return ConfigError("the app is not open; use `with app:` or `app.open()` first")
