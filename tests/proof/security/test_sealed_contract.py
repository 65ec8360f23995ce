"""The contract holds on encrypted storages: the tests of what compares, copies and replays values run again."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from tests.backends import TESTS_FOLDER

CHOSEN: Final = {
    "sqlite": (
        *("artifact", "checkpoint", "dead_letter", "effect", "effect_claim", "emit", "event", "event_wake", "fork"),
        *("process", "queue", "schedule", "session_append", "session_commit", "session_turn", "trigger", "wait"),
    ),
    "postgres": ("effect", "emit", "event_wake", "session_append", "session_turn"),
}
"""What compares values for idempotency, copies them between rows, or decides on them; ``--sealed`` can run all."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", CHOSEN)
def test_the_contract_holds_on_encrypted_storages(backend: str) -> None:
    """Each test passes with a sealer as it does without."""
    files = [str(TESTS_FOLDER / "contract" / f"test_{name}.py") for name in CHOSEN[backend]]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--sealed", "--backend", backend, "-m", "not proof", *files]
    ended = subprocess.run(command, cwd=TESTS_FOLDER.parent, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-4_000:]
    assert f"backend {backend}: 0 tests" not in ended.stdout
