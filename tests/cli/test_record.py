"""``lash records``: lists and shows records of the storage and of sessions."""

from __future__ import annotations

import asyncio

import lash
from tests.cli.kit import output, run, values


async def _fill(url: str) -> None:
    async with await lash.open(url) as storage:
        await storage.sessions.create("s")
        await storage.records.put("users", "ann", {"n": 1}, index={"team": "red"})
        await storage.records.put("users", "bob", b"\xff", index={"team": "blue"})
        await storage.records.put("drafts", "1", None, session_id="s", expires_at_ms=2**52)


def test_records_are_listed_and_shown(backend_url: str) -> None:
    """Collections, records by field and in reverse, and values are shown; an unknown record exits with code 3."""
    asyncio.run(_fill(backend_url))
    assert output("records", "ls", url=backend_url).split() == ["COLLECTION", "users"]
    assert output("records", "ls", "users", "--where", "team=red", url=backend_url).split()[6:8] == ["ann", "1"]
    found = values("records", "ls", "users", "--reverse", url=backend_url)
    assert [(each["key"], each["version"], each["index"]) for each in found] == [
        ("bob", 1, {"team": "blue"}),
        ("ann", 1, {"team": "red"}),
    ]
    assert (found[0]["base64"], found[1]["value"]) == ("/w==", {"n": 1})
    assert output("records", "get", "users", "ann", url=backend_url) == '{"n":1}\n'
    (draft,) = values("records", "get", "drafts", "1", "--session", "s", url=backend_url)
    assert (draft["value"], draft["session_id"], draft["expires_at_ms"]) == (None, "s", 2**52)
    assert run("records", "get", "users", "nobody", url=backend_url).returncode == 3
    assert run("records", "ls", "users", "--where", "team", url=backend_url).returncode == 2
    assert run("records", "ls", "--session", "unknown", url=backend_url).returncode == 3
