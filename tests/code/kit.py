"""Functions that programs call in tests, with counts of their calls."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lash
from lash.code import CodeProcess
from lash.model.effect import ProcessScope
from lash.model.process.process import Failure
from lash.model.wait import CustomIdentity
from lash.runtime.app import App
from lash.runtime.processes.handle import ProcessHandle
from tests.runtime.process_bench import World, outcome_of


@dataclasses.dataclass
class Page:
    """A result that is more than plain JSON."""

    url: str
    words: int


class Functions:
    """What the programs of one test may call."""

    def __init__(self, world: World) -> None:
        self._world = world

    def declare(self, app: App, **options: Any) -> CodeProcess:  # noqa: ANN401 (those of code_process)
        """Declare programs with these functions."""
        return app.code_process("analyst", tools=[self.search, self.fetch, self.fail], **options)

    def search(self, topic: str, most: int = 2) -> list[str]:
        """Find pages about a topic."""
        self._world.count(f"search {topic}")
        return [f"{topic}/{number}" for number in range(1, most + 1)]

    async def fetch(self, url: str) -> Page:
        self._world.count(f"fetch {url}")
        if url == "broken":
            raise lash.Permanent("404")
        return Page(url, len(url))

    async def fail(self, kind: str) -> None:
        self._world.count(f"fail {kind}")
        raise {"value": ValueError, "key": KeyError, "own": _OwnError}[kind](f"no {kind}")


class _OwnError(Exception):
    pass


async def resolve(app: App, handle: ProcessHandle[Any], wait: str, value: Any) -> None:  # noqa: ANN401 (any JSON)
    """Resolve a wait of a process by its name."""
    scope = ProcessScope(process_id=handle.process_id)
    key = await app.storage.waits.key(scope, CustomIdentity(key=wait))
    assert await app.resolve(key.text, value)


async def failure_of(handle: ProcessHandle[Any]) -> Failure:
    """Return how a process failed."""
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Failure)
    return outcome


def sandboxes_of(pid: int) -> list[int]:
    """Return the sandboxes among the children of a process that have not ended."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = {int(child) for each in children for child in each.read_text().split()}
    return [child for child in sorted(found) if runs(child)]


def runs(pid: int) -> bool:
    """Return whether a sandbox runs; one that has ended may wait for its parent to notice."""
    try:
        name, state = Path(f"/proc/{pid}/stat").read_text().split("(", 1)[1].rsplit(")", 1)
    except OSError:
        return False
    return name == "monty" and state.split()[0] not in "ZX"


def until(holds: Callable[[], bool], *, within_s: float = 30) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
