"""Every scenario that needs no peer library runs, at a size too small for its figures to mean anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kit.peer import PeerMissing, require
from benchmarks.kit.registry import load_all
from benchmarks.kit.workspace import workspace
from benchmarks.run import main, tell
from lash.testing.postgres_server import PostgresServer

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

_KEYS = {"scenario", "ours", "other", "ratio", "unit", "versions"}
_WIDE = ("postgres-commit", "postgres-append", "postgres-claim")
"""Like postgres-steps, these are measured with 1, 8 and 32 callers; 8 suffice here."""
_ALONE = tuple(
    f"{name}-8" if name in _WIDE else name
    for name, each in load_all().items()
    if not each.peers and each.part_of is None
)
_PROMISED = """
sqlite-commit sqlite-commit-16 sqlite-append sqlite-steps postgres-commit postgres-append postgres-claim postgres-steps
postgres-commit-rows chat chats-16 sqlite-processes reopen steps queue recover gc lost-updates flat-commit flat-append
flat-claim flat-active-tail flat-record flat-idle flat-turn wake-latency signal-latency enqueue-latency import-time
idle-worker parked disk fleet fleet-throughput fleet-peers append-32 tail-20 list-sessions console console-streams
adapter-langgraph adapter-openai adapter-adk adapter-pydantic-ai adapter-chatkit adapter-strands
flat-program askers agent-turn fork-chain
"""


def test_every_scenario_is_there() -> None:
    """Every promised scenario exists."""
    assert set(_PROMISED.split()) <= set(load_all())


@pytest.mark.parametrize("name", _ALONE)
def test_a_scenario_ends_with_one_json_object(
    name: str, postgres_server: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line is one object with six keys, whose ratio is that of its two figures."""
    scenario = load_all()[name]
    with workspace(tmp_path, rounds=1, scale=0.004, server=postgres_server) as here:
        tell(scenario, scenario.run(here))
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(last) == _KEYS
    assert last["scenario"] == name
    assert last["ours"] > 0
    assert last["other"] > 0
    assert last["ratio"] == pytest.approx(last["ours"] / last["other"], rel=0.01)
    assert last["versions"]["lash"]


def test_an_unknown_scenario_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown name is answered with the list of known names."""
    monkeypatch.setattr(sys, "argv", ["benchmarks.run", "no-such"])
    assert main() == 2
    assert "sqlite-commit" in capsys.readouterr().err


def test_a_missing_rival_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the environments of the peer libraries, a scenario prints how to install them."""
    for name in load_all()["reopen"].peers:
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text("something==1\n")
    monkeypatch.setattr("benchmarks.kit.peer._PEERS", tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["benchmarks.run", "reopen", f"--directory={tmp_path}", "--rounds=1", "--scale=0.01"]
    )
    assert main() == 3
    error = capsys.readouterr().err
    assert "make peers" in error
    assert "openai_agents" in error


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """A workspace removes everything made in it."""
    with workspace(tmp_path, rounds=1, scale=0.01) as here, here.file() as path:
        path.write_text("x")
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_the_runner_is_a_program() -> None:
    """It starts in the way that the Makefile starts it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--help"], check=True, capture_output=True, text=True
    )
    assert "--rounds" in done.stdout


def test_a_missing_adapter_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the environment of an adapter, a scenario says how to install it."""
    monkeypatch.setattr("tools.adapter_environment.HOME", tmp_path)
    with pytest.raises(PeerMissing, match=r"langgraph_adapter not installed .* `make adapters-install`"):
        require(*load_all()["adapter-langgraph"].peers)
