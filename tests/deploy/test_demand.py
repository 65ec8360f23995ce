"""What starts and stops workers: the manifest for KEDA, the documented columns, and a role that reads nothing else."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
import pytest_asyncio
import yaml

import lash
from tests.docs.pages import DOCS, ROOT, blocks_of
from tests.factories.process import registered

_ROLE: Final = "lash_demand"
_DOCUMENTED: Final = re.compile(r"^\| `(\w+)` \| ([\w ]+) \| ([A-Z]+)", re.MULTILINE)
_KUBERNETES: Final = ROOT / "deploy" / "kubernetes"


def _manifests(name: str) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all((_KUBERNETES / name).read_text())}


def _page() -> str:
    return (DOCS / "howto/deploy.md").read_text(encoding="utf-8")


@pytest_asyncio.fixture
async def reader(postgres_schema_url: str) -> AsyncIterator[tuple[asyncpg.Connection[asyncpg.Record], str]]:
    """A connection of the documented role to a storage with work, and the schema of the storage."""
    parts = urlsplit(postgres_schema_url)
    (schema,) = parse_qs(parts.query)["schema"]
    async with await lash.open(postgres_schema_url) as storage:
        for session_id in ("a", "b"):
            await storage.sessions.create(session_id)
            await lash.SessionHandle(storage, session_id).send("hello")
        await registered(storage, "p")
    (grants,) = (block.body for block in blocks_of(_page()) if block.body.startswith("CREATE ROLE"))
    owner = await asyncpg.connect(parts._replace(query="").geturl())
    await owner.execute(f"DROP ROLE IF EXISTS {_ROLE}")
    await owner.execute(grants.replace("public", f'"{schema}"'))
    host = parts.netloc.rpartition("@")[2]
    connection = await asyncpg.connect(parts._replace(query="", netloc=f"{_ROLE}:…@{host}").geturl())
    try:
        yield connection, schema
    finally:
        await connection.close()
        await owner.execute(f"DROP OWNED BY {_ROLE}; DROP ROLE {_ROLE}")
        await owner.close()


async def test_keda_asks_for_what_there_is(reader: tuple[asyncpg.Connection[asyncpg.Record], str]) -> None:
    """The query of the manifest is one number, as the role of the page; due timers count as one more."""
    connection, schema = reader
    (trigger,) = _manifests("keda.yaml")["ScaledObject"]["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert query.count("public.") == 1
    ((value,),) = await connection.fetch(query.replace("public.", f'"{schema}".'))
    assert value == 3
    assert float(trigger["metadata"]["targetQueryValue"]) > 0


async def test_the_documented_columns_are_those_of_the_view(
    reader: tuple[asyncpg.Connection[asyncpg.Record], str],
) -> None:
    """The page has the names and types of the view on PostgreSQL, in their order."""
    connection, schema = reader
    rows = await connection.fetch(
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a "
        "WHERE a.attrelid = $1::regclass AND a.attnum > 0 ORDER BY a.attnum",
        f'"{schema}".lash_demand',
    )
    assert [(name, kind) for name, kind, _ in _DOCUMENTED.findall(_page())] == [tuple(row) for row in rows]


def test_a_program_without_lash_reads_the_view_of_a_file(tmp_path: Path) -> None:
    """The module of the standard library reads the documented columns."""
    asyncio.run(_create(f"sqlite:///{tmp_path}/lash.db"))
    program = (
        "import sqlite3\n"
        "found = sqlite3.connect('lash.db').execute('SELECT * FROM lash_demand')\n"
        "print(*[column[0] for column in found.description], *found.fetchall()[0])"
    )
    printed = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    names = " ".join(name for name, _, _ in _DOCUMENTED.findall(_page()))
    assert printed.stdout.strip() == f"{names} 0 0 0 0 0.0 None"


async def _create(url: str) -> None:
    await (await lash.open(url)).close()


async def test_the_role_reads_nothing_else(reader: tuple[asyncpg.Connection[asyncpg.Record], str]) -> None:
    """The role of the page reads the view; tables, messages and writes are refused."""
    connection, schema = reader
    for statement in (
        'SELECT * FROM "{}".lash_batches',
        'SELECT * FROM "{}".lash_sessions',
        'DELETE FROM "{}".lash_batches',
        'CREATE TABLE "{}".mine (a int)',
        'DROP VIEW "{}".lash_demand',
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement.format(schema))


def test_keda_scales_the_deployment() -> None:
    """The manifest names the Deployment of lash.yaml and its own secret."""
    keda, workers = _manifests("keda.yaml"), _manifests("lash.yaml")["Deployment"]
    spec = keda["ScaledObject"]["spec"]
    assert spec["scaleTargetRef"]["name"] == workers["metadata"]["name"]
    (trigger,) = spec["triggers"]
    assert trigger["type"] == "postgresql"
    authentication = keda["TriggerAuthentication"]
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert [each["parameter"] for each in authentication["spec"]["secretTargetRef"]] == ["connection"]
