"""What a turn, a step and an event write to the log, and how many statements and transactions they take."""

from __future__ import annotations

from pathlib import Path

import lash
from benchmarks.kit.disk import log_bytes
from lash.model.process.event import EventDraft
from tests.factories.process import NOTE, external

WARM_UP = 30
TIMES = 20
STEPS = 10
TEXT = "the quick brown fox jumps over the lazy dog " * 25
"""About a thousand characters."""

TURN_BYTES = 60_000
STEP_BYTES = 11_500
EVENT_BYTES = 9_000
TURN_STATEMENTS = 20
TURN_TRANSACTIONS = 3
"""The message, the claim and the commit."""
PROCESS_STATEMENTS = 60
PROCESS_TRANSACTIONS = STEPS + 3
"""The steps, and around them the start, the claim and the end."""
EVENT_STATEMENTS = 6


class Statements(lash.Hook):
    """Counts statements by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def statement(self, name: str) -> None:
        self.names.append(name)


class Costs:
    """An application on a file whose log is not copied back, so that it holds all that was written."""

    def __init__(self, path: Path) -> None:
        self.counted = Statements()
        self.app = lash.App(f"sqlite:///{path}?checkpoint_pages=1000000", worker=False, hooks=[self.counted])
        self._path = path
        self.answering = self.app.agent(self._answer)
        self.stepping = self.app.process(self._step)

    def log_bytes(self) -> int:
        return log_bytes(self._path)

    async def turn(self, number: int) -> None:
        await self.app.session("s", self.answering).send(TEXT[:200], key=str(number))
        await self.app.drain()

    async def process(self) -> None:
        await self.app.start(self.stepping)
        await self.app.drain()

    @staticmethod
    async def _answer(turn: lash.Turn) -> str:
        return TEXT

    @staticmethod
    async def _step(ctx: lash.Context) -> None:
        for _ in range(STEPS):
            await ctx.step("tool", _tool)


async def _tool() -> str:
    return TEXT


async def test_a_turn_writes_few_bytes_in_few_statements(tmp_path: Path) -> None:
    """A turn with a short message and a reply of a thousand characters stays within its bytes and statements."""
    costs = Costs(tmp_path / "lash.db")
    async with costs.app:
        for number in range(WARM_UP):
            await costs.turn(number)
        before = costs.log_bytes()
        costs.counted.names.clear()
        for number in range(WARM_UP, WARM_UP + TIMES):
            await costs.turn(number)
        assert (costs.log_bytes() - before) / TIMES <= TURN_BYTES
        names = costs.counted.names
        assert len(names) / TIMES <= TURN_STATEMENTS, names[-TURN_STATEMENTS:]
        assert names.count("commit") / TIMES <= TURN_TRANSACTIONS, names[-TURN_STATEMENTS:]


async def test_a_step_writes_few_bytes(tmp_path: Path) -> None:
    """A step that records a thousand characters stays within its bytes, its share of the process included.

    Each step is a transaction of its own.
    """
    costs = Costs(tmp_path / "lash.db")
    async with costs.app:
        for _ in range(WARM_UP // STEPS):
            await costs.process()
        before = costs.log_bytes()
        costs.counted.names.clear()
        for _ in range(TIMES // STEPS):
            await costs.process()
        assert (costs.log_bytes() - before) / TIMES <= STEP_BYTES
        names, processes = costs.counted.names, TIMES // STEPS
        assert len(names) / processes <= PROCESS_STATEMENTS, names[-PROCESS_STATEMENTS:]
        assert names.count("commit") / processes <= PROCESS_TRANSACTIONS, names[-PROCESS_STATEMENTS:]


async def test_an_event_writes_few_bytes(tmp_path: Path) -> None:
    """An event with a payload of a thousand characters is one transaction, and stays within its bytes."""
    costs = Costs(tmp_path / "lash.db")
    async with costs.app as app:
        await app.storage.processes.register(external("log"))

        async def append() -> None:
            await app.storage.events.append("log", EventDraft(event_type=NOTE.name, payload={"text": TEXT}))

        for _ in range(WARM_UP):
            await append()
        before = costs.log_bytes()
        costs.counted.names.clear()
        for _ in range(TIMES):
            await append()
        assert (costs.log_bytes() - before) / TIMES <= EVENT_BYTES
        assert len(costs.counted.names) / TIMES <= EVENT_STATEMENTS
        assert costs.counted.names.count("commit") == TIMES
