"""The statements that lash runs on PostgreSQL, recorded, and run again by the bare driver and by pgbench.

Every side starts from a copy of the same database, so keys, revisions and tokens come out the same. Each lane is
recorded alone, so that no statement serves two callers. The server plans as it does for lash, once for each connection:
or it would plan again in the first five runs, which takes longer than running.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import urlsplit

import asyncpg

from benchmarks.kit.workspace import Workspace
from lash.postgres.engine.pool import PLANNING
from lash.testing.postgres_server import find_binaries

Statement = tuple[str, tuple[object, ...]]
Lane = list[list[Statement]]
"""The statements of each call of one lane."""


if TYPE_CHECKING:
    # The stubs make it generic; at run time it is a plain class.
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection


class RecordingConnection(_Connection):
    """A connection that records its statements in the list of its class, except hints, which belong to no call."""

    heard: ClassVar[list[Statement]] = []

    async def fetch(  # type: ignore[override]  # the driver's overloads differ in an unused parameter
        self,
        query: str,
        *args: object,
        timeout: float | None = None,  # noqa: ASYNC109 (the driver's own)
    ) -> list[asyncpg.Record]:
        if "pg_notify" not in query:
            self.heard.append((query, args))
        return await super().fetch(query, *args, timeout=timeout)


async def recording_pool(url: str) -> asyncpg.Pool[asyncpg.Record]:
    """Return a pool whose connections record."""
    RecordingConnection.heard.clear()
    return await asyncpg.create_pool(url, min_size=1, max_size=1, connection_class=RecordingConnection)


async def bare_rate(url: str, lanes: Sequence[Lane], *, warm: int) -> float:
    """Run the statements with the driver alone, each lane on its own connection; return calls in a second."""
    connections = [await asyncpg.connect(url, max_cacheable_statement_size=0, server_settings=PLANNING) for _ in lanes]
    try:
        await asyncio.gather(*map(_run, connections, (lane[:warm] for lane in lanes)))
        begin = time.perf_counter()
        await asyncio.gather(*map(_run, connections, (lane[warm:] for lane in lanes)))
        return sum(len(lane) - warm for lane in lanes) / (time.perf_counter() - begin)
    finally:
        for connection in connections:
            await connection.close()


async def _run(connection: asyncpg.Connection[asyncpg.Record], calls: Lane) -> None:
    for call in calls:
        for statement, arguments in call:
            await connection.fetch(statement, *arguments)


def find_pgbench() -> Path | None:
    """Return the pgbench that belongs to the server, or any; print why and return None if there is none."""
    beside = find_binaries() / "pgbench"
    found = beside if beside.exists() else shutil.which("pgbench")
    if found is None:
        print("no pgbench found: the comparison with it is left out")
        return None
    return Path(found)


def pgbench_rate(pgbench: Path, workspace: Workspace, url: str, lanes: Sequence[Lane], *, warm: int) -> float:
    """Let one client of pgbench run each lane, every statement prepared once; return calls in a second.

    The script has two transactions: the first prepares and does the calls to warm up, the second all others. When the
    clients began and ended the second stands in pgbench's log.
    """
    script, log = workspace.new_path(".sql"), workspace.new_path("-log")
    script.write_text("".join(_script(lanes, warm)))
    parts = urlsplit(url)
    command = [str(pgbench), "--no-vacuum", "--protocol=simple", f"--client={len(lanes)}", "--jobs=1"]
    command += ["--transactions=2", "--define=phase=0", f"--file={script}", "--log", f"--log-prefix={log}"]
    command += [f"--host={parts.hostname}", f"--port={parts.port}", f"--username={parts.username}", parts.path[1:]]
    planning = " ".join(f"-c {name}={value}" for name, value in PLANNING.items())
    environment = os.environ | {"PGPASSWORD": parts.password or "", "PGOPTIONS": planning}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode != 0 or "aborted" in done.stderr:
        raise AssertionError(f"pgbench failed: {done.stderr[-2000:]}")
    script.unlink()
    return sum(len(lane) - warm for lane in lanes) / _second_phase_s(log)


_SECOND: Final = 2
"""pgbench counts the transactions of a client from 1."""


def _second_phase_s(prefix: Path) -> float:
    begins, ends = [], []
    for file in prefix.parent.glob(f"{prefix.name}.*"):
        for line in file.read_text().splitlines():
            _client, number, taken_us, _script, epoch, microseconds, *_ = map(int, line.split())
            if number == _SECOND:
                ends.append(epoch + microseconds / 1e6)
                begins.append(ends[-1] - taken_us / 1e6)
        file.unlink()
    return max(ends) - min(begins)


def _script(lanes: Sequence[Lane], warm: int) -> Iterable[str]:
    names = {statement: f"s{number}" for number, statement in enumerate(_statements(lanes))}
    yield "\\set phase :phase + 1\n\\if :phase = 1\n"
    for statement, name in names.items():
        yield f"PREPARE {name} AS {statement.rstrip().rstrip(';')};\n"
    yield from _branches(names, [lane[:warm] for lane in lanes])
    yield "\\else\n"
    yield from _branches(names, [lane[warm:] for lane in lanes])
    yield "\\endif\n"


def _statements(lanes: Sequence[Lane]) -> dict[str, None]:
    return {statement: None for lane in lanes for call in lane for statement, _ in call}


def _branches(names: dict[str, str], lanes: Sequence[Lane]) -> Iterable[str]:
    for client, lane in enumerate(lanes):
        yield f"\\{'el' * bool(client)}if :client_id = {client}\n"
        for call in lane:
            for statement, arguments in call:
                listed = f"({', '.join(map(literal, arguments))})" if arguments else ""
                yield f"EXECUTE {names[statement]}{listed};\n"
    yield "\\endif\n"


def literal(value: object) -> str:
    """Return the value as SQL, of the type of its parameter."""
    if value is None:
        return "NULL"
    return "'" + _plain(value).replace("'", "''") + "'"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, list | tuple):
        return "{" + ",".join(_element(each) for each in value) + "}"
    return str(value)


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    return '"' + _plain(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
