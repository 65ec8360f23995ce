"""Both backends side by side on one clock: opened once for a run of a machine, emptied for each of its examples."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final, TypeVar, Unpack

from lash.errors import LashError
from lash.stores.storage import Storage
from lash.stores.table_rows import HasRows, RowTable
from lash.testing.clock import START_MS, ManualClock
from lash.testing.harness import OpenOptions, URLHarness
from tests.proof.model.controls import Control, ControlledPostgres, PostgresControl, SQLiteControl
from tests.proof.model.names import Names
from tests.proof.model.rows import Dump, comparable

T = TypeVar("T")

HANDS: Final = 2
"""How many storages are open on each database, so that the cache of one can be out of date."""
KEPT_TABLES: Final = ("lash_migrations", "lash_secrets")
"""Values that a storage makes once and then caches."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of an operation, in symbols."""

    value: object


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The error of an operation: its class, its text and its fields, in symbols."""

    kind: str
    text: str
    facts: dict[str, object]


Operation = Callable[["Side"], Awaitable[object]]


class Side:
    """One backend: its storages, a connection past them, and the ids that it made."""

    def __init__(self, harness: URLHarness, control: Control) -> None:
        self.harness = harness
        self.control = control
        self.storages: list[Storage] = []
        self.tables: tuple[RowTable, ...] = ()
        self.names = Names()
        self.hand = 0

    @property
    def backend(self) -> str:
        return self.harness.backend

    @property
    def storage(self) -> Storage:
        """The storage that runs the next operation."""
        return self.storages[self.hand]

    def own(self, value: T) -> T:
        """Return a value of the model with this side's own ids in it."""
        return self.names.own(value)

    async def open(self, **options: Unpack[OpenOptions]) -> None:
        """Close every open storage and open it again."""
        first = await self.harness.reopen(**options)
        self.storages = [first, *[await self.harness.open(**options) for _ in range(HANDS - 1)]]
        assert isinstance(first, HasRows)
        self.tables = tuple(table for table in first.rows.tables if table.name not in KEPT_TABLES)

    async def begin(self) -> None:
        """Empty the database and forget all ids."""
        await self.control.empty([table.name for table in self.tables])
        self.names = Names()

    async def run(self, operation: Operation) -> Answer | Refusal:
        """Run the operation, and return the result or the refusal in symbols; errors from outside lash propagate."""
        try:
            return Answer(self.names.symbolic(await operation(self)))
        except LashError as error:
            text, facts = self.names.symbolic((str(error), dict(vars(error))))
            return Refusal(type(error).__name__, text, facts)

    async def dump(self, left_out: Collection[tuple[str, str]]) -> Dump:
        """Return all rows, comparable with those of another side."""
        found = {table: await self.control.select(table) for table in self.tables}
        return comparable(found, self.names, left_out)


class World:
    """Everything that a machine works on."""

    def __init__(self, runner: asyncio.Runner, sides: list[Side], options: OpenOptions) -> None:
        self._runner = runner
        self._options = options
        self.sides = sides
        self.now_ms = START_MS
        self.hand = 0
        self.example = 0
        """The number of examples so far. A name made with it is the same on both sides, and new to every cache."""
        self.steps = 0
        """The number of operations, on each side."""
        self.reached: Counter[str] = Counter()
        """How often each class of operations was reached."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def begin(self) -> None:
        """Start an example: empty databases, the first handles, the first moment, no names."""
        self.example += 1
        self.use_hand(0)
        self.advance(START_MS - self.now_ms)
        self.run(self._on_all(Side.begin))

    def both(self, operation: Operation) -> list[Answer | Refusal]:
        """Run the operation on every side, one after the other."""
        self.steps += 1
        return self.run(self._on_all(lambda side: side.run(operation)))

    def use_hand(self, hand: int) -> None:
        """Run the following operations on this storage of each side."""
        self.hand = hand
        for side in self.sides:
            side.hand = hand

    def reopen(self) -> None:
        """Close every storage and open it again."""
        self.run(self._on_all(lambda side: side.open(**self._options)))

    def advance(self, milliseconds: int) -> None:
        """Move the clocks of all sides, forward or back."""
        self.now_ms += milliseconds
        if milliseconds:
            self.run(self._on_all(lambda side: side.harness.clock.advance(milliseconds)))

    def dumps(self, left_out: Collection[tuple[str, str]]) -> list[Dump]:
        """Return all rows of every side, except columns that cannot be compared."""
        return self.run(self._on_all(lambda side: side.dump(left_out)))

    async def close(self) -> None:
        for side in self.sides:
            await side.harness.close()
            await side.control.close()

    async def _on_all(self, work: Callable[[Side], Awaitable[T]]) -> list[T]:
        return [await work(side) for side in self.sides]


def open_world(runner: asyncio.Runner, sqlite_url: str, postgres_url: str, **options: Unpack[OpenOptions]) -> World:
    """Open both backends; ``World.close`` closes them."""
    control = PostgresControl(postgres_url)
    sides = [
        Side(URLHarness("sqlite", sqlite_url, ManualClock()), SQLiteControl(sqlite_url)),
        Side(ControlledPostgres(postgres_url, control), control),
    ]
    world = World(runner, sides, options)
    world.reopen()
    return world
