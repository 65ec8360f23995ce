"""What opening an existing file does, and what it leaves for the first use; counted in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import apsw

import lash
from lash.sqlite.engine.connection import open_reader, open_writer
from lash.sqlite.engine.options import SQLiteOptions

_PROGRAM = """
import asyncio
import collections
import json
import sys
import threading

import lash
import lash.sqlite.storage

counts = collections.Counter()
prepared = set()
read = set()


def count(frame, event, _argument):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        prepared.add(frame.f_locals["obj"].__name__)


def audit(event, arguments):
    if event == "open" and str(arguments[0]).endswith((".sql", ".json")):
        read.add(str(arguments[0]).partition("/lash/sqlite/")[2])


async def main(url):
    sys.addaudithook(audit)
    threading.setprofile(count)
    sys.setprofile(count)
    storage = await lash.open(url)
    sys.setprofile(None)
    found = {"prepared": sorted(prepared), "read": sorted(read)}
    await storage.close()
    print(json.dumps(found))


asyncio.run(main(sys.argv[1]))
"""


def _opened(url: str) -> dict[str, list[str]]:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM, url], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = json.loads(ran.stdout)
    return found


async def test_opening_prepares_no_type_of_a_noun(tmp_path: Path) -> None:
    """Types are prepared when they are first read: there are hundreds, and a program reads few of them."""
    url = f"sqlite:///{tmp_path}/lash.db"
    await (await lash.open(url)).close()
    assert _opened(url)["prepared"] == ["SchemaDigest"]


async def test_opening_a_current_file_reads_no_migration(tmp_path: Path) -> None:
    """Migrations are read if the schema of the file is older; a file without tables needs all of them."""
    url = f"sqlite:///{tmp_path}/lash.db"
    assert any(file.startswith("sql/migrations/") for file in _opened(url)["read"])
    assert not any(file.startswith("sql/migrations/") for file in _opened(url)["read"])


async def test_opening_a_current_file_runs_thirteen_statements(tmp_path: Path) -> None:
    """Settings of two connections, the schema, the write-ahead log and the mark of a sealed storage; no transaction."""
    url, statements = f"sqlite:///{tmp_path}/lash.db", list[str]()
    await (await lash.open(url)).close()

    def trace(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(event["sql"].upper()))

    apsw.connection_hooks.append(trace)
    try:
        storage = await lash.open(url)
        opened = list(statements)
        await storage.close()
    finally:
        apsw.connection_hooks.remove(trace)
    assert len(opened) == 13
    assert not [each for each in opened if "BEGIN" in each or "PRAGMA_" in each]


async def test_every_connection_refuses_orphans_and_the_reading_one_refuses_writes(tmp_path: Path) -> None:
    """Foreign keys are checked on both connections of a file, and the second one writes nothing."""
    path, found = tmp_path / "lash.db", list[tuple[bool, int]]()
    await (await lash.open(f"sqlite:///{path}")).close()
    options = SQLiteOptions()
    for connection in (
        open_writer(str(path), options, lambda _connection, _new: None),
        open_reader(str(path), options),
    ):
        found.append((bool(connection.pragma("foreign_keys")), connection.pragma("query_only")))
        connection.close()
    assert found == [(True, 0), (True, 1)]
