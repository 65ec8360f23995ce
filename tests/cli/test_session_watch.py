"""``lash sessions watch``: changes of all sessions, as they happen."""

from __future__ import annotations

import asyncio
import subprocess

import msgspec

import lash
from tests.cli.kit import command, environment, run, terminal
from tests.factories.session import started


class Page(msgspec.Struct):
    """A line of ``--json``."""

    changes: list[dict[str, object]]
    cursor: str


def test_watch_shows_changes_and_deletions(backend_url: str) -> None:
    """Each change is a line, and with --json a page with a cursor from which another run continues."""
    asyncio.run(_create(backend_url, "s1"))
    with terminal("sessions", "watch", "--all", url=backend_url) as screen:
        screen.read_until("watching all sessions")
        screen.read_until("changed  s1  revision 1")
        asyncio.run(_create(backend_url, "s2"))
        screen.read_until("changed  s2  revision 1")
        assert run("sessions", "rm", "s1", "--yes", url=backend_url).returncode == 0
        screen.read_until("deleted  s1")
        screen.type("\x03")
        assert screen.end() == 130
    first = _page(backend_url, "--all")
    assert [each["session_id"] for each in first.changes] == ["s2", "s1"]
    asyncio.run(_create(backend_url, "s3"))
    rest = _page(backend_url, "--after", first.cursor)
    assert [each["session_id"] for each in rest.changes] == ["s3"]
    refused = run("sessions", "watch", "--after", "wrong", url=backend_url)
    assert (refused.returncode, "expected a cursor of the feed of sessions" in refused.stderr) == (2, True)


async def _create(url: str, session_id: str) -> None:
    async with await lash.open(url) as storage:
        await started(storage, session_id)


def _page(url: str, *options: str) -> Page:
    """Return the first page that a run writes."""
    words = command("sessions", "watch", "--json", *options, "--url", url)
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        try:
            return msgspec.json.decode(process.stdout.readline(), type=Page)
        finally:
            process.kill()
