"""Killed imports and copies: nothing is ever written in part, and the next run finishes."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

import lash
from lash.errors import SessionNotFound
from lash.transfer import copy_storage, import_session
from tests.transfer.kit import comparable, exported, opened, rich_session
from tests.transfer.test_copy import EVERYTHING, populated, require_same
from tests.warm_programs import run

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


async def moved(*order: str) -> bool:
    """Run a mover, and return True if it finished and False if it was killed."""
    code, said = await asyncio.to_thread(run, "tests.transfer.mover", *order)
    assert code == (0 if said == "done\n" else -9)
    return said == "done\n"


async def test_a_killed_import_is_whole_or_none(backend_url: str, backend_name: str, tmp_path: Path) -> None:
    """An import killed at ever later statements leaves no head or the whole session, and the next run continues."""
    path = tmp_path / "s.jsonl"
    async with opened("sqlite://") as (source,):
        await rich_session(source)
        path.write_bytes(await exported(source, with_queue=True))
    expected = comparable(path.read_bytes())
    seen: set[str] = set()
    statement, ended = 0, False
    async with await lash.open(backend_url) as target:
        while not ended:
            assert statement < 400
            ended = await moved("import", str(path), backend_url, str(statement))
            seen.add(await _state(target, expected))
            statement += 7 if backend_name == "postgres" else 23
        assert await _state(target, expected) == "whole"
        assert not (await import_session(target, io.BytesIO(path.read_bytes()))).created
    assert {"nothing", "whole"} <= seen


async def _state(target: lash.Storage, expected: list[dict[str, object]]) -> str:
    try:
        head = await target.session("s").head()
    except SessionNotFound:
        return "nothing"
    if head is None:
        return "begun"
    there = comparable(await exported(target, with_queue=True))
    wanted = [line for line in expected if line["kind"] not in ("header", "batch")]
    assert [line for line in there if line["kind"] not in ("header", "batch")] == wanted
    return "whole" if there == expected else "without all of its queue"


async def test_a_killed_copy_is_gone_on_with(backend_url: str, tmp_path: Path) -> None:
    """A copy killed at ever later statements ends with everything once, and with nothing in part before."""
    source_url = f"sqlite:///{tmp_path / 'source.db'}"
    async with opened(source_url, backend_url) as (source, target):
        await populated(source)
        kills, statement = 0, 5
        while not await moved("copy", source_url, backend_url, str(statement)):
            kills += 1
            statement += 17
            for summary in (await target.sessions.list()).sessions:
                name = summary.meta.session_id
                if await target.session(name).head() is not None:
                    assert comparable(await exported(target, name))[1:] == comparable(await exported(source, name))[1:]
        assert kills > 3
        await require_same(source, target)
        assert (await copy_storage(source, target)).skipped == EVERYTHING
