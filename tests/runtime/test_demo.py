"""The claims of the demo hold on both backends, and a claim that does not hold is shown as failed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import lash
from lash.demo import stage
from lash.demo.screen import Screen
from lash.runtime.turns.handle import SessionHandle


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
def test_every_claim_is_true(backend_url: str, backend_name: str) -> None:
    """A worker is killed and another takes over; six claims hold; there are no colours without a terminal."""
    command = [sys.executable, "-m", "lash.demo", "--url", backend_url]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    assert shown.stdout.count("\n  ok      ") == 6
    assert "kill -9" in shown.stdout
    assert ": recorded by worker" in shown.stdout
    assert "\x1b" not in shown.stdout


async def test_a_false_claim_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tool that was called twice is reported from the ledger, whatever the database says."""
    ledger = tmp_path / "ledger.txt"
    await asyncio.to_thread(ledger.write_text, "flight by 1\nflight by 2\n")
    async with await lash.open("sqlite://") as storage:
        chat = SessionHandle(storage, "s")
        await chat.send("hello")
        assert await stage._check(Screen(), storage, chat, ledger) == 1
    assert "FAILED  every tool was called once: flight 2" in capsys.readouterr().out
