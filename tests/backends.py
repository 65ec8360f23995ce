"""What the tests know about backends: their names, which test belongs to which, and a schema of one's own."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

import lash

BACKENDS = ("sqlite", "memory", "postgres")
SCHEMA = "lash"
"""Where the storages of copied databases are; not the default, so that a forgotten schema is noticed."""

TESTS_FOLDER = Path(__file__).resolve().parent
_FOLDER_BACKENDS = {TESTS_FOLDER / "sqlite": "sqlite", TESTS_FOLDER / "postgres": "postgres"}


def backend_of_path(path: Path) -> str | None:
    """Return the backend whose own folder the test file lies in."""
    return next((name for folder, name in _FOLDER_BACKENDS.items() if path.is_relative_to(folder)), None)


@dataclasses.dataclass
class BackendTally:
    """How many tests ran on each backend, and which of them failed."""

    ran: dict[str, set[str]] = dataclasses.field(default_factory=lambda: {name: set() for name in BACKENDS})
    failed: dict[str, set[str]] = dataclasses.field(default_factory=lambda: {name: set() for name in BACKENDS})

    def record(self, backend: str, test: str, *, failed: bool) -> None:
        """Count a test once, whichever of its phases reported."""
        self.ran[backend].add(test)
        if failed:
            self.failed[backend].add(test)

    def lines(self) -> list[str]:
        """Return one line for each backend."""
        return [self._line(name) for name in BACKENDS]

    def _line(self, name: str) -> str:
        ran, failed = len(self.ran[name]), len(self.failed[name])
        ending = f", {failed} failed" if failed else ""
        return f"backend {name}: {ran} tests ran, {ran - failed} passed{ending}"


def with_parameters(url: str, **parameters: str) -> str:
    """Return the URL with these query parameters set."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query)) | parameters
    return urlunsplit(parts._replace(query=urlencode(query)))


@contextmanager
def fresh_schema(url: str) -> Iterator[str]:
    """Create an empty schema, give its URL, and drop it with all that is in it."""
    schema = f"test_{uuid.uuid4().hex}"
    run_sql(url, f'CREATE SCHEMA "{schema}"')
    try:
        yield with_parameters(url, schema=schema)
    finally:
        # A connection that a test left behind must fail this test, not hang the run.
        run_sql(url, "SET lock_timeout = '5s'", f'DROP SCHEMA "{schema}" CASCADE')


@contextmanager
def template_database(url: str) -> Iterator[str]:
    """Create a database with a migrated, empty storage in its schema ``lash``, and give its name."""
    name = f"template_{uuid.uuid4().hex}"
    run_sql(url, f'CREATE DATABASE "{name}"')
    _in_thread(lambda: asyncio.run(_migrate(with_parameters(_on_database(url, name), schema=SCHEMA))))
    yield name
    run_sql(url, f'DROP DATABASE "{name}"')


@contextmanager
def copied_database(url: str, template: str) -> Iterator[str]:
    """Copy the template, which takes a tenth of the time of the migrations; give its URL, and drop it again."""
    name = f"test_{uuid.uuid4().hex}"
    run_sql(url, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    try:
        yield with_parameters(_on_database(url, name), schema=SCHEMA)
    finally:
        # By force: the server may not have noticed yet that a process which the test has killed is gone. A connection
        # that a test itself forgets is told by its ResourceWarning.
        run_sql(url, f'DROP DATABASE "{name}" WITH (FORCE)')


def run_sql(url: str, *statements: str) -> None:
    """Run statements on a connection of their own, from a test with or without an event loop."""
    _in_thread(lambda: asyncio.run(_execute(url, statements)))


def _on_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


async def _migrate(url: str) -> None:
    await (await lash.open(url)).close()


def _in_thread(work: Callable[[], None]) -> None:
    """Do something in a thread without an event loop, and raise here what it raises there."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 (it is raised again in the caller's thread)
            failures.append(failure)

    thread = threading.Thread(target=run, name="test-sql")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


async def _execute(url: str, statements: tuple[str, ...]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
