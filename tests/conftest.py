"""Backends for the tests, and a count of how many ran on each.

``--backend NAME`` (repeatable) leaves out the tests of the other backends. ``--sealed`` encrypts the values of every
storage of the contract suite. With ``CI=true`` in the environment, a run
over the whole suite in which no test ran on PostgreSQL fails, however green it looks.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from lash.testing.postgres_server import PostgresServer, ServerNotFound
from tests.backends import (
    BACKENDS,
    TESTS_FOLDER,
    BackendTally,
    ReusedDatabase,
    backend_of_path,
    fresh_schema,
    migrate,
)
from tests.proof.selection import MAKE_PROOF, has_none, is_left_to_proof, parts_of, place_of
from tests.s3_server import S3Server
from tools.rotation import part_of, turn_of

# Before a test imports them, so that a failing assertion in a helper shows its values.
pytest.register_assert_rewrite("tests.factories", "tests.contract", "tests.proof.faults.ledger")

# How long an example takes says something about the machine, not about lash.
settings.register_profile("lash", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lash")

_TALLY = pytest.StashKey[BackendTally]()
_PROPERTY = "backend"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for the whole run, started by the first test that needs it."""
    try:
        server = PostgresServer()
        server.start()
    except ServerNotFound as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture
def postgres_schema_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty schema that belongs to this test alone."""
    with fresh_schema(postgres_server.url) as url:
        yield url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty, migrated storage in a file to copy: a test that migrates its own spends most of its time there."""
    path = tmp_path_factory.mktemp("migrated") / "lash.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def reused_database(postgres_server: PostgresServer) -> Iterator[ReusedDatabase]:
    """A database with a migrated storage that tests use one after another."""
    database = ReusedDatabase(postgres_server.url)
    yield database
    database.close()


@pytest.fixture
def postgres_storage_url(reused_database: ReusedDatabase) -> Iterator[str]:
    """The URL of an empty, migrated storage that no other test uses meanwhile."""
    yield reused_database.url
    reused_database.clean()


@pytest.fixture(scope="session")
def reused_database_at_rest(postgres_server: PostgresServer) -> Iterator[ReusedDatabase]:
    """A database as `reused_database`, whose time stands still until a test sets it."""
    database = ReusedDatabase(postgres_server.url, manual_clock=True)
    yield database
    database.close()


@pytest.fixture
def postgres_url_at_rest(reused_database_at_rest: ReusedDatabase) -> Iterator[str]:
    """The URL of an empty, migrated storage whose time stands still until the test sets it."""
    yield reused_database_at_rest.url
    reused_database_at_rest.clean()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server for the whole run, started by the first test that needs it."""
    with S3Server() as server:
        yield server


@pytest.fixture(params=BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> str:
    """Each backend in turn; a test that asks for it runs once on each and counts for it."""
    name: str = request.param
    return name


@pytest.fixture
def backend_url(backend_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty, migrated storage on the backend."""
    if backend_name == "memory":
        return "sqlite://"
    if backend_name == "sqlite":
        return f"sqlite:///{shutil.copy(request.getfixturevalue('migrated_file'), tmp_path)}"
    url: str = request.getfixturevalue("postgres_storage_url")
    return url


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", action="append", choices=BACKENDS, default=[], help="run only this backend's tests")
    parser.addoption("--sealed", action="store_true", help="encrypt the values of every storage of the contract suite")


def pytest_configure(config: pytest.Config) -> None:
    # A parent that starts us in the background may ignore Ctrl-C, which every process of the tests would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_TALLY] = BackendTally()
    # Reports reach a plugin's hooks without the configuration, so the counting plugin carries its tally itself.
    config.pluginmanager.register(_Counter(config.stash[_TALLY]), "lash-backend-counter")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return three processes for two cores: many tests wait for a server, a lease or another process."""
    return max(2, 3 * (os.cpu_count() or 1) // 2)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not load a file of which the marks choose no test."""
    is_test = collection_path.suffix == ".py" and collection_path.is_relative_to(TESTS_FOLDER)
    return True if is_test and has_none(collection_path, config.option.markexpr) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what collection creates out of garbage collections: it lives as long as the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen: list[str] = config.getoption("backend")
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        backend = _backend_of(item)
        if backend is not None:
            item.user_properties.append((_PROPERTY, backend))
        if is_left_to_proof(item.nodeid, backend):
            item.add_marker(pytest.mark.proof)
        (left_out if chosen and backend not in (None, *chosen) else kept).append(item)
    if config.option.markexpr == MAKE_PROOF:
        kept = _rotated(kept, left_out)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = sorted(kept, key=lambda item: place_of(item.path))


def _rotated(items: list[pytest.Item], left_out: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of this commit; CI leaves the other parts to the next commits."""
    turn = turn_of()
    if turn is None:
        return items
    kept: list[pytest.Item] = []
    divided: dict[tuple[Path, int], list[pytest.Item]] = {}
    for item in items:
        parts = parts_of(item.path, _backend_of(item))
        is_divided = parts > 1 and item.get_closest_marker("proof") is not None
        (divided.setdefault((item.path, parts), []) if is_divided else kept).append(item)
    for (_, parts), found in divided.items():
        chosen = part_of(found, turn, parts)
        kept += chosen
        left_out += [item for item in found if item not in chosen]
    return kept


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print as the last line how many tests ran on each backend."""
    if _TALLY not in config.stash or config.option.collectonly or _is_helper(config):
        return
    writer = config.get_terminal_writer()
    for line in config.stash[_TALLY].lines():
        writer.line(line)
    if _postgres_is_missing(config):
        writer.line("CI=true and no test ran on postgres: the run fails", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _postgres_is_missing(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class _Counter:
    """Counts each test that ran, by the backend it belongs to."""

    def __init__(self, tally: BackendTally) -> None:
        self._tally = tally

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        backend = dict(report.user_properties).get(_PROPERTY)
        if isinstance(backend, str) and (report.failed or (report.when == "call" and report.passed)):
            self._tally.record(backend, report.nodeid, failed=report.failed)


def _backend_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    if callspec is not None and "backend_name" in callspec.params:
        name: str = callspec.params["backend_name"]
        return name
    return backend_of_path(item.path)


def _postgres_is_missing(config: pytest.Config) -> bool:
    if os.environ.get("CI") != "true" or config.option.collectonly or _is_narrowed(config) or _is_helper(config):
        return False
    return not config.stash[_TALLY].ran["postgres"]


def _is_helper(config: pytest.Config) -> bool:
    """Return whether this process is an xdist worker, whose controller counts all tests."""
    return hasattr(config, "workerinput")


def _is_narrowed(config: pytest.Config) -> bool:
    if config.getoption("backend") or config.option.keyword:
        return True
    named = [(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args]
    return not any(TESTS_FOLDER.is_relative_to(path) for path in named)
