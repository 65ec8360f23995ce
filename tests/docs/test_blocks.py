"""Every code block of the documentation works."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.backends import run_sql
from tests.cli.kit import run
from tests.docs.pages import README, SHELLS, blocks_of, markdown_files, page_id
from tests.docs.running import run_page

pytestmark = pytest.mark.proof

PAGES = [README, *markdown_files()]
ELSEWHERE = {"cli.md": "its commands are run one by one, on both backends, by tests/cli/test_examples.py"}
DATABASE = "postgresql://lash@db.example.com/agents"
"""The database URL in pages; the tests replace it by a real one."""
SHOP = 'import lash\n\napp = lash.App("sqlite:///shop.db")\n'


def _runs(path: Path) -> bool:
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    return page_id(path) not in ELSEWHERE and any(block.language in {"python", *SHELLS} for block in blocks)


def _needs_server(path: Path) -> bool:
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    return any(DATABASE in block.body for block in blocks if block.language in {"python", *SHELLS})


WITHOUT_SERVER = [path for path in PAGES if _runs(path) and not _needs_server(path)]
WITH_SERVER = [path for path in PAGES if _runs(path) and _needs_server(path)]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's working directory, with the application that guides refer to."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "agents.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LASH_URL", raising=False)
    return tmp_path


@pytest.fixture
def database_url(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database with an empty storage, and the tools of its server on the path."""
    if postgres_server.private:
        monkeypatch.setenv("PATH", f"{find_binaries()}{os.pathsep}{os.environ['PATH']}")
    if shutil.which("pg_dump") is None:
        pytest.skip("the named server has no pg_dump")
    name = f"docs_{uuid.uuid4().hex}"
    run_sql(postgres_server.url, f'CREATE DATABASE "{name}"')
    url = postgres_server.url.rpartition("/")[0] + f"/{name}"
    assert run("init", url=f"{url}?schema=lash").returncode == 0
    yield url
    run_sql(postgres_server.url, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.mark.parametrize("path", WITHOUT_SERVER, ids=page_id)
def test_a_page_is_a_program(path: Path, directory: Path) -> None:
    """The blocks run in order in one directory, and print exactly the output that the page shows."""
    run_page(path, directory)


@pytest.mark.parametrize("path", WITH_SERVER, ids=page_id)
def test_a_page_about_postgresql_is_a_program(path: Path, directory: Path, database_url: str) -> None:
    """The blocks run in order against a real server, and print the output that the page shows."""
    run_page(path, directory, server=(DATABASE, database_url))


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_every_block_says_its_language(path: Path) -> None:
    """Each block has a language, so that none is left out of the run."""
    known = {"python", "text", "mermaid", "json", "js", "lash", *SHELLS}
    for block in blocks_of(path.read_text(encoding="utf-8")):
        assert block.language in known, f"line {block.line}: {block.language!r}"
