"""The examples as a user runs them: separate programs, with a model server of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.programs import EXAMPLES, Programs

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the examples to ``make proof``: each starts several programs and waits in real time."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.proof)


class Model:
    """A running stand-in for a model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self, rules: list[dict[str, object]] | None = None) -> None:
        """Start it on a free port, with the test's own rules if there are any."""
        command = [sys.executable, str(EXAMPLES / "model_server.py"), "--port", "0"]
        if rules is not None:
            script = self._folder / "rules.json"
            script.write_text(json.dumps(rules))
            command += ["--script", str(script)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def calls(self) -> dict[str, int]:
        """Return how often each request was made, by its id."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/calls") as answer:
            counts: dict[str, int] = json.load(answer)
        return counts


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    """A model with the built-in rules."""
    server = Model(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def programs(model: Model, tmp_path: Path) -> Iterator[Programs]:
    """Starts examples, and kills the ones still running when the test ends."""
    environment = os.environ | {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none", "LOGNAME": "ada"}
    started = Programs(tmp_path, environment)
    yield started
    started.kill_all()
