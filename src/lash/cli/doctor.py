"""``lash doctor``: checks everything from the interpreter to the storage."""

from __future__ import annotations

import platform
import shutil
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lash.cli import exits
from lash.cli.command import command
from lash.cli.exits import CommandFailed
from lash.cli.failure import reason_of, where
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import plural, size
from lash.cli.url import is_postgres, sqlite_path

if TYPE_CHECKING:
    from lash.model.process.process import ProcessRecord
    from lash.model.worker import WorkerRecord
    from lash.postgres.storage import PostgresStorage
    from lash.stores.storage import Storage

_COLUMNS: Final = (Column("CHECK"), Column("STATE", state=True), Column("DETAIL", stretch=True))
_PACKAGES: Final = ("msgspec", "apsw", "jsonschema-rs", "cronsim", "click")
_EXTRAS: Final = {"asyncpg": "postgres", "obstore": "s3"}
_SKEW_NOTED_MS: Final = 1_000
_FREE_NOTED: Final = 512 * 1024 * 1024
_COUNTED: Final = 100
"""Dead letters, failed processes and ready sessions are counted up to here."""
_RECENT_S: Final = 86_400
_NAMED: Final = 3


class Check(NamedTuple):
    """The result of one check: ``ok``, ``warn`` or ``fail``, and the detail."""

    name: str
    state: str
    detail: str


@command("doctor", "lash doctor", "lash doctor --json")
async def doctor(shell: Shell) -> None:
    """Check the environment and the storage: versions, drivers, connection, schema, clock, durability.

    On PostgreSQL it also checks that notifications arrive, that the server has enough connections for the workers that
    run, and lists transactions that block others.
    Exits with code 1 if something fails; warnings do not.
    """
    checks = [*_environment(), *[check async for check in _storage(shell)]]
    shell.table(_COLUMNS, checks, tuple, nothing="", value=lambda check: check._asdict())
    failed = [check.name for check in checks if check.state == "fail"]
    if failed:
        raise CommandFailed(exits.ERROR, f"{plural(len(failed), 'check')} failed: {', '.join(failed)}")


def _environment() -> list[Check]:
    from lash import __file__, __version__

    return [
        Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        Check("lash", "ok", f"{__version__} from {Path(__file__).parent}"),
        *_namesake(),
        _liveness(),
        *(_package(name) for name in _PACKAGES),
        *(_extra(name, extra) for name, extra in _EXTRAS.items()),
    ]


def _liveness() -> Check:
    from lash.backend.liveness import current_process

    if current_process() is not None:
        return Check("liveness", "ok", "workers in this pid namespace notice at once that another one died")
    reason = "/proc is missing or belongs to another pid namespace"
    return Check("liveness", "warn", f"{reason}: the work of a dead worker waits until its lease expires")


def _namesake() -> list[Check]:
    """Report the other project's distribution ``lash`` if it has installed files into this package."""
    from importlib import metadata

    try:
        files = metadata.distribution("lash").files or []
    except metadata.PackageNotFoundError:
        return []
    if not any(file.parts[0] == "lash" for file in files):
        return []
    remedy = "pip uninstall lash && pip install --force-reinstall lash-runtime"
    return [Check("distributions", "fail", f"the distribution lash is installed over lash-runtime: {remedy}")]


def _package(name: str) -> Check:
    from importlib import metadata

    try:
        return Check(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name, "fail", f"not installed: pip install {name}")


def _extra(name: str, extra: str) -> Check:
    from importlib import metadata

    try:
        return Check(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name, "ok", f"not installed; only needed for its extra: pip install 'lash-runtime[{extra}]'")


async def _storage(shell: Shell) -> AsyncIterator[Check]:
    """Check the storage; an error while opening it is a result, not the end of the command."""
    from lash.errors import LashError

    try:
        url = shell.url
    except CommandFailed as missing:
        yield Check("url", "fail", missing.line)
        return
    yield Check("url", "ok", f"{shell.shown_url} (from {shell.url_source})")
    for check in _file(url):
        yield check
    began = time.perf_counter()
    try:
        async with shell.storage() as storage:
            took_ms = (time.perf_counter() - began) * 1_000
            yield Check("connection", "ok", f"opened in {took_ms:.0f} ms")
            async for check in storage_checks(storage, shell.scrubbed):
                yield check
    except LashError as error:
        yield Check("connection", "fail", shell.scrubbed(exits.explain(error)[1]))


def _file(url: str) -> list[Check]:
    """Check the file of a SQLite storage and the disk that it is on."""
    path = None if is_postgres(url) else sqlite_path(url)
    if path is None:
        return []
    from lash.sqlite.engine.location import bundled_version

    file = Path(path).resolve()
    checks = [Check("sqlite", "ok", bundled_version())]
    if not file.parent.is_dir():
        return [*checks, Check("disk", "fail", f"no such directory: {file.parent}")]
    free = shutil.disk_usage(file.parent).free
    state = "ok" if free >= _FREE_NOTED else "warn"
    return [*checks, Check("disk", state, f"{size(free)} free at {file.parent}"), *_rights(file)]


def _rights(file: Path) -> list[Check]:
    """Check that the write-ahead log is open to no more users than the database; opening corrects the lock files."""
    from lash.base.file_rights import rights_of

    database = rights_of(file)
    if database is None:
        return []
    beside = {f"{file}{ending}": rights_of(f"{file}{ending}") for ending in ("-wal", "-shm")}
    wide = [name for name, rights in beside.items() if rights is not None and rights.mode & ~database.mode]
    if not wide:
        return [Check("file rights", "ok", f"{database.mode:o}")]
    remedy = f"chmod {database.mode:o} {' '.join(wide)}"
    return [Check("file rights", "warn", f"the write-ahead log is open to more users than the database: {remedy}")]


async def storage_checks(storage: Storage, scrubbed: Callable[[str], str]) -> AsyncIterator[Check]:
    """Check what is stored, and the server of a PostgreSQL storage; ``scrubbed`` removes secrets from an error."""
    async for check in _contents(storage):
        yield check
    async for check in _server(storage, scrubbed):
        yield check


async def _contents(storage: Storage) -> AsyncIterator[Check]:
    # Opening has compared every column, key and index with what this version needs.
    yield Check("schema", "ok", "as this version expects")
    yield _durability(storage)
    yield await _clock(storage)
    yield await _dead_letters(storage)
    yield await _failed_processes(storage)
    ready = await storage.queue.ready_sessions(limit=_COUNTED)
    yield Check("ready sessions", "ok", f"{_many(len(ready))} with unclaimed work")
    yield await _unserved(storage)


async def _unserved(storage: Storage) -> Check:
    """Report agents whose queued input no worker takes, while workers run that take other work."""
    workers = [each for each in await storage.workers.list() if not each.is_late]
    agents = await storage.queue.ready_agents(limit=_COUNTED)
    left = [agent for agent in agents if not any(each.takes_turns(agent) for each in workers)]
    if not workers or not left:
        return await _without_their_labels(storage, workers)
    names = ", ".join("input that names no agent" if agent is None else agent for agent in left[:_NAMED])
    return Check("workers", "warn", f"no live worker takes {names}; see lash workers ls, and lash worker --agent")


async def _without_their_labels(storage: Storage, workers: Sequence[WorkerRecord]) -> Check:
    """Report sessions with queued input whose labels no worker takes."""
    from lash.model.session.session import SessionFilter, SessionState

    served, left = [each.beat.served for each in workers if each.beat.session_slots > 0], list[str]()
    if served and all(each.labels for each in served):
        queued = await storage.sessions.list(SessionFilter(state=SessionState.QUEUED), limit=_COUNTED)
        metas = [each.meta for each in queued.sessions]
        left = [each.session_id for each in metas if not any(kind.takes_labels(each.labels) for kind in served)]
    if not left:
        return Check("workers", "ok", f"{plural(len(workers), 'live worker')}")
    names = ", ".join(left[:_NAMED])
    return Check("workers", "warn", f"no live worker takes the labels of {names}; see lash workers ls")


async def _dead_letters(storage: Storage) -> Check:
    letters = await storage.queue.dead(limit=_COUNTED)
    if not letters:
        return Check("dead letters", "ok", "none")
    last = letters[-1]
    example = f"{last.reason}{where(last.error)} in session {last.batch.session_id}"
    return Check("dead letters", "warn", f"{_many(len(letters))}, such as {example}; see lash queue dead")


async def _failed_processes(storage: Storage) -> Check:
    """Report the processes of the last day that failed, such as one that a schedule starts in vain at each tick."""
    from lash.model.process.process import ProcessFilter, ProcessStatus

    since_ms = round((time.time() - _RECENT_S) * 1_000)
    wanted = ProcessFilter(status=ProcessStatus.FAILED, created_after_ms=since_ms)
    failed = (await storage.processes.list(wanted, limit=_COUNTED)).processes
    if not failed:
        return Check("failed processes", "ok", "none of those started in the last day")
    last, names = failed[0], Counter(_name(record) for record in failed)
    many = ", ".join(f"{name} ({count})" for name, count in names.most_common(_NAMED))
    example = f"{last.process_id}: {reason_of(last.projection.outcome)}"
    detail = f"{_many(len(failed))} in the last day: {many}; the newest is {example}; see lash ps --status failed"
    return Check("failed processes", "warn", detail)


def _name(record: ProcessRecord) -> str:
    identity = record.registration.identity
    return "unnamed" if identity is None else identity.label or identity.kind


def _many(count: int) -> str:
    return f"{count} or more" if count == _COUNTED else str(count)


async def _server(storage: Storage, scrubbed: Callable[[str], str]) -> AsyncIterator[Check]:
    """Check what only a PostgreSQL server has: notifications, and locks that are held for long."""
    # Its module needs a driver that a program without PostgreSQL may lack.
    if "lash.postgres.storage" not in sys.modules:
        return
    from lash.errors import LashError
    from lash.postgres.storage import PostgresStorage

    if not isinstance(storage, PostgresStorage):
        return
    try:
        took_s = await storage.hints.probe()
        if took_s is None:
            yield Check("notifications", "warn", "none behind a pooler in transaction mode; add listen_url to the URL")
        else:
            yield Check("notifications", "ok", f"received in {took_s * 1_000:.0f} ms")
    except LashError as error:
        yield Check("notifications", "warn", scrubbed(exits.explain(error)[1]))
    yield await _connections(storage)
    holders = [holder.description for holder in await storage.lock_holders()]
    yield Check("locks", "warn" if holders else "ok", "; ".join(holders) or "no transaction blocks others")


async def _connections(storage: PostgresStorage) -> Check:
    """Compare what the workers need at least with what the server has."""
    use = await storage.connection_use()
    hosts = [worker.beat.host for worker in await storage.workers.list() if not worker.is_late]
    # One for the statements of each worker, and one on each machine that listens for all of them.
    needed = len(hosts) + len(set(hosts))
    detail = f"{use.used} of {use.limit} in use; {plural(len(hosts), 'live worker')} need at least {needed}"
    if needed > use.limit:
        return Check("connections", "warn", f"{detail}: raise max_connections, or run fewer workers")
    if use.is_nearly_full:
        return Check("connections", "warn", f"{detail}; pools open no more than one while the server is so full")
    return Check("connections", "ok", detail)


def _durability(storage: Storage) -> Check:
    from lash.model.session.session import Durability

    kept = storage.durability is Durability.DURABLE and storage.attachments.durability is Durability.DURABLE
    return Check("durability", "ok" if kept else "warn", storage.durability.value)


async def _clock(storage: Storage) -> Check:
    """Compare the storage's clock with this machine's, at the midpoint of the round trip."""
    from lash.backend.liveness import current_owner

    before_ms = time.time() * 1_000
    work = await storage.work.poll(sessions=1, processes=1, owner=current_owner("lash-doctor"))
    after_ms = time.time() * 1_000
    skew_ms = round(work.now_ms - (before_ms + after_ms) / 2)
    state = "ok" if abs(skew_ms) <= _SKEW_NOTED_MS + (after_ms - before_ms) / 2 else "warn"
    return Check("clock", state, f"the storage's clock is {skew_ms:+} ms from this machine's")
