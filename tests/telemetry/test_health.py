"""``/live``, ``/ready`` and ``/metrics`` over HTTP."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

import lash
from lash.cli.main import main
from lash.telemetry import health
from lash.telemetry.health import Checks, parse_address, serve_health


async def _nothing() -> None: ...


async def _get(port: int, path: str) -> tuple[int, str]:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{port}{path}", timeout=30)
    return answer.status_code, answer.text


async def test_probes_of_a_program_that_works() -> None:
    """All three answer; other paths name them."""
    async with serve_health("127.0.0.1", 0, Checks(lambda: "a 1\n", _nothing)) as port:
        assert await _get(port, "/live") == (200, "live\n")
        assert await _get(port, "/ready?verbose") == (200, "ready\n")
        assert await _get(port, "/metrics") == (200, "a 1\n")
        assert await _get(port, "/") == (404, "unknown path; there are /live, /ready and /metrics\n")
    with pytest.raises(httpx.ConnectError):
        await _get(port, "/live")


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (lash.StoreUnavailable("no server"), "StoreUnavailable: no server"),
        (lash.SchemaMismatch("no tables"), "SchemaMismatch: no tables"),
        (None, "the storage did not answer within 0.05 s"),
    ],
)
async def test_a_program_without_its_storage_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, check: lash.LashError | None, reason: str
) -> None:
    """An error of the storage, or none of its answers, is 503 with the reason; the program is live."""
    monkeypatch.setattr(health, "_READY_S", 0.05)

    async def ready() -> None:
        if check is not None:
            raise check
        await asyncio.sleep(3_600)

    async with serve_health("127.0.0.1", 0, Checks(str, ready)) as port:
        assert await _get(port, "/ready") == (503, f"{reason}\n")
        assert (await _get(port, "/live"))[0] == 200


async def test_a_blocked_event_loop_is_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the loop is blocked, /live and /ready answer 503 from their own thread."""
    monkeypatch.setattr(health, "BLOCKED_S", 1.0)
    answers: list[int] = []

    def ask(port: int) -> None:
        with httpx.Client() as client:
            while not answers or answers[-1] == 200:
                answers.append(client.get(f"http://127.0.0.1:{port}/live", timeout=30).status_code)
                time.sleep(0.01)
            answers.append(client.get(f"http://127.0.0.1:{port}/ready", timeout=30).status_code)

    async with serve_health("127.0.0.1", 0, Checks(str, _nothing)) as port:
        asking = threading.Thread(target=ask, args=(port,))
        asking.start()
        # It blocks the loop until the probe has failed.
        asking.join(60)
        assert answers[-2:] == [503, 503]


@pytest.mark.parametrize("text", ["9090", ":9090", "host:", "host:x", "host:70000", "host:-1"])
def test_an_address_of_another_form_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The worker ends with code 2 and the expected form, before it opens anything."""
    with pytest.raises(lash.ConfigError, match="expected HOST:PORT"):
        parse_address(text)
    assert main(["worker", "lash_test_nowhere:app", "--http", text]) == 2
    assert "HOST:PORT" in capsys.readouterr().err


def test_addresses_of_both_families() -> None:
    """IPv6 addresses stand in brackets."""
    assert [parse_address(each) for each in ("0.0.0.0:0", "[::1]:9090")] == [("0.0.0.0", 0), ("::1", 9090)]


async def test_a_port_that_is_taken_is_an_error() -> None:
    """The error names the address and the remedy."""
    async with serve_health("127.0.0.1", 0, Checks(str, _nothing)) as port:
        with pytest.raises(lash.ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .*; choose another port"):
            async with serve_health("127.0.0.1", port, Checks(str, _nothing)):
                pass


def test_the_command_serves_probes_and_metrics(tmp_path: Path) -> None:
    """``lash worker --http`` serves a worker's figures until it stops."""
    (tmp_path / "shop.py").write_text(
        "import lash\napp = lash.App('sqlite:///shop.db')\n@app.agent\nasync def a(turn): return turn.text\n"
    )
    command = [sys.executable, "-m", "lash", "worker", "shop:app", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        line = next(line for line in worker.stderr if "serving /live, /ready and /metrics on" in line)
        address = f"http://{line.split()[-1]}"
        assert [httpx.get(f"{address}{path}", timeout=30).status_code for path in ("/live", "/ready")] == [200, 200]
        while "lash_storage_bytes" not in (metrics := httpx.get(f"{address}/metrics", timeout=30).text):
            time.sleep(0.02)
        assert 'lash_queue_depth{state="queued"} 0' in metrics
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
