"""``lash db check`` and attachments that are stored outside of the database."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import lash


def test_bytes_elsewhere_are_no_reason_to_remove_a_session(tmp_path: Path) -> None:
    """The command cannot read them, says so, and does not advise to delete the session."""
    url = f"sqlite:///{tmp_path / 'x.db'}"

    async def attach() -> None:
        app = lash.App(url, worker=False, attachment_bytes=lash.FileBytes(tmp_path / "files"))

        @app.agent
        async def attaching(turn: lash.Turn) -> str:
            await turn.attach(b"x", "text/plain")
            return "done"

        async with app:
            await app.session("s", attaching).send("x")
            await app.drain()

    asyncio.run(attach())
    command = [sys.executable, "-m", "lash", "db", "check", "--json", "--url", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (finding,) = json.loads(done.stdout)["findings"]
    assert "FileBytes" in finding["remedy"]
    assert "rm" not in finding["remedy"].split()
