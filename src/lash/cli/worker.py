"""``lash worker module:app``: run an application's worker until a signal ends it."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from types import FrameType, ModuleType
from typing import Final

import msgspec

from lash.cli.exits import SCHEMA
from lash.cli.output import escaped, write
from lash.errors import ConfigError, LashError, SchemaMismatch
from lash.runtime.app import App
from lash.telemetry.health import Checks, parse_address, serve_health
from lash.telemetry.prometheus import PrometheusHook
from lash.telemetry.systemd import notify, notifying

_DEFAULT_NAME: Final = "app"
_LEAVE_S: Final = 2.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log: Final = logging.getLogger("lash.worker")


class _EscapingFormatter(logging.Formatter):
    """Escapes log records; a traceback keeps its lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record with each of its lines escaped."""
        return "\n".join(map(escaped, super().format(record).split("\n")))


def run(target: str, wanted: Mapping[str, object], *, level: str, http: str | None = None) -> int:
    """Load the application and run its worker until a signal or a newer schema stops it; return the exit code.

    ``wanted`` are options of the worker; None leaves one as the application has it. With ``http``, an address, it
    serves probes and metrics there.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    try:
        address, metrics = None if http is None else parse_address(http), PrometheusHook()
        app = load_app(target)
        given = {name: value for name, value in wanted.items() if value is not None}
        hooks = () if address is None else (metrics,)
        app.configure(options=msgspec.structs.replace(app.options, **given), worker=True, hooks=hooks)
    except ConfigError as error:
        write(sys.stderr, f"lash worker: {error}")
        return 2
    # Code that ignores cancellation, or a thread that does not end, would keep the event loop from closing.
    leave = threading.Timer(_LEAVE_S, _leave)
    leave.daemon = True
    try:
        asyncio.run(_work(app, leave, address, metrics))
    except LashError as error:
        write(sys.stderr, f"lash worker: {error}")
        return SCHEMA if isinstance(error, SchemaMismatch) else 1
    finally:
        leave.cancel()
    return 0


def load_app(target: str) -> App:
    """Return the application ``module:name``; raise ConfigError naming the part that is missing."""
    module_name, _, path = target.partition(":")
    if not module_name:
        raise ConfigError(f"expected module:name, such as shop.agents:app, got {target!r}")
    # A console script does not have the working directory on sys.path; ``python -m`` does.
    if os.getcwd() not in sys.path:  # noqa: PTH109 (what sys.path holds is text)
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 (the same)
    found: object = _import(module_name)
    for name in (path or _DEFAULT_NAME).split("."):
        if not hasattr(found, name):
            raise ConfigError(f"module {module_name!r} has no {path or _DEFAULT_NAME!r}{_apps_of(found)}")
        found = getattr(found, name)
    if not isinstance(found, App):
        raise ConfigError(
            f"{target!r} is of type {type(found).__name__}, not a lash.App{_apps_of(_import(module_name))}"
        )
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and (name == missing.name or name.startswith(f"{missing.name}.")):
            raise ConfigError(f"unknown module {name!r}; searched {os.getcwd()} and sys.path") from None  # noqa: PTH109
        raise ConfigError(f"module {name!r} needs {missing.name!r}, which is not installed") from missing
    except Exception as error:
        write(sys.stderr, *traceback.format_exc().rstrip("\n").split("\n"))
        raise ConfigError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _apps_of(found: object) -> str:
    names = (
        [name for name, value in vars(found).items() if isinstance(value, App)] if hasattr(found, "__dict__") else []
    )
    return f"; it has {', '.join(sorted(names))}" if names else ""


def _leave() -> None:
    _log.warning("some work ignored cancellation and was abandoned; other workers will resume it from its records")
    os._exit(1)


async def _work(app: App, leave: threading.Timer, address: tuple[str, int] | None, metrics: PrometheusHook) -> None:
    stop = asyncio.Event()
    async with AsyncExitStack() as serving:
        serving.enter_context(_hints(stop))
        await app.open()
        if address is not None:
            checks = Checks(metrics.text, app.storage.work.check_schema)
            port = await serving.enter_async_context(serve_health(*address, checks))
            _log.info("serving /live, /ready and /metrics on %s:%d", address[0], port)
        await serving.enter_async_context(notifying())
        _log.info("working, on up to %d sessions and %d processes", app.options.sessions, app.options.processes)
        working, stopped = asyncio.create_task(app.run()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                notify("STOPPING=1")
                _log.info("stopping; what runs has %g seconds to finish", app.options.grace_s)
        finally:
            stopped.cancel()
            # Raises the worker's error, if it failed.
            await app.stop()
            await asyncio.wait({working, stopped})
            leave.start()
        _log.info("stopped")


@contextmanager
def _hints(stop: asyncio.Event) -> Iterator[None]:
    """The first signal requests a stop; the second ends this process, even while the loop is blocked."""
    loop = asyncio.get_running_loop()
    asked = False

    def heard(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        asked = True
        loop.call_soon_threadsafe(stop.set)

    before = {number: signal.signal(number, heard) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
