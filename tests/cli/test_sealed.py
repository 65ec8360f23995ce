"""The command and encrypted storages: keys come from the environment."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import lash
from tests.cli.kit import run
from tests.factories.session import commit, node

OLD, NEW = bytes([1]) * 32, bytes([2]) * 32


def listed(**keys: bytes) -> str:
    return ",".join(f"{key_id}:{base64.b64encode(key).decode()}" for key_id, key in keys.items())


async def _fill(url: str) -> None:
    async with await lash.open(url, sealer=lash.AesGcm({"old": OLD})) as storage:
        await storage.sessions.create("s")
        await storage.session("s").commit(commit(0, node("a", None, "Where is my money?")))


def test_keys_come_from_the_environment(tmp_path: Path) -> None:
    """Without them a sealed storage is refused with the remedy; with them it is read, and sealed again."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    asyncio.run(_fill(url))
    variables = {"LASH_URL": url}
    refused = run("sessions", "show", "s", variables=variables)
    assert refused.returncode == 2
    assert "LASH_KEYS" in refused.stderr
    both = variables | {"LASH_KEYS": listed(new=NEW, old=OLD)}
    assert "Where is my money?" in run("sessions", "show", "s", variables=both).stdout
    assert "again" in run("db", "rewrap", variables=both).stdout
    only_new = variables | {"LASH_KEYS": listed(new=NEW)}
    assert "Where is my money?" in run("sessions", "show", "s", variables=only_new).stdout
    copied = run("db", "copy", f"sqlite:///{tmp_path / 'y.db'}", variables=only_new)
    assert copied.returncode == 0, copied.stderr
    assert b"money" not in (tmp_path / "y.db").read_bytes()
