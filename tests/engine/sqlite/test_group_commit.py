from __future__ import annotations

from pathlib import Path

import pytest

from lash.base.clock import SystemClock
from lash.errors import ConfigError, CorruptData, InvalidInput, RevisionConflict, SchemaMismatch
from lash.sqlite.engine.database import Reader, SQLiteOptions, Transaction
from tests.engine.sqlite.kit import Gate, Item, ids, insert, open_database, queue_behind, write_then_refuse


async def test_waiting_bodies_share_one_transaction(tmp_path: Path) -> None:
    """Ten bodies that wait together cost one BEGIN and one COMMIT."""
    names: list[str] = []
    database = await open_database(tmp_path / "x.db", hook=names.append)
    results = await queue_behind(database, Gate(), *(insert(number) for number in range(10)))
    assert results == [1] * 10
    # The first pair belongs to the gate, which runs alone.
    assert names.count("begin") == names.count("commit") == 2
    assert names.count("savepoint") == 0
    assert database.read(ids) == list(range(10))
    await database.close()


async def test_a_group_is_bounded() -> None:
    """No more bodies than the limit share a transaction."""
    names: list[str] = []
    database = await open_database(options=SQLiteOptions(group_limit=4), hook=names.append)
    await queue_behind(database, Gate(), *(insert(number) for number in range(10)))
    # One for the gate, then 4 + 4 + 2.
    assert names.count("commit") == 4
    await database.close()


@pytest.mark.parametrize("in_memory", [True, False])
async def test_a_failing_body_is_undone_alone(tmp_path: Path, in_memory: bool) -> None:  # noqa: FBT001
    """A body that raises loses its own writes, and its neighbours keep theirs: all run again, with savepoints."""
    names: list[str] = []
    database = await open_database(None if in_memory else tmp_path / "x.db", hook=names.append)
    results = await queue_behind(database, Gate(), insert(1), write_then_refuse, insert(2))
    assert results[0] == results[2] == 1
    assert isinstance(results[1], RevisionConflict)
    assert database.read(ids) == [1, 2]
    assert names.count("savepoint") == 3
    await database.close()


async def test_a_body_that_fails_before_it_writes_costs_nothing(tmp_path: Path) -> None:
    """Where there is nothing to undo, its neighbours do not run again."""

    def refuse(transaction: Transaction) -> None:
        transaction.all(Item, "items")
        raise RevisionConflict("s", 1, 2)

    names: list[str] = []
    database = await open_database(tmp_path / "x.db", hook=names.append)
    # The last one breaks a constraint: its statement has left nothing.
    results = await queue_behind(database, Gate(), insert(1), refuse, insert(2), insert(1))
    assert results[0] == results[2] == 1
    assert isinstance(results[1], RevisionConflict)
    assert isinstance(results[3], CorruptData)
    assert names.count("insert_item") == 3
    assert names.count("savepoint") == 0
    assert database.read(ids) == [1, 2]
    await database.close()


async def test_a_body_sees_what_ran_before_it() -> None:
    """Within one group the bodies run in order, each on the state that the ones before it left."""
    database = await open_database()
    results = await queue_behind(database, Gate(), insert(1), ids, insert(2), ids)
    assert results == [1, [1], 1, [1, 2]]
    await database.close()


async def test_run_counts_changed_rows() -> None:
    """`run` returns how many rows the statement changed, 0 included."""
    database = await open_database()
    rows: list[dict[str, int | str]] = [{"id": number, "label": "a"} for number in range(3)]
    await database.write(lambda transaction: transaction.run_many("insert_item", rows))
    assert await database.write(lambda transaction: transaction.run("rename_all", label="b")) == 3
    assert await database.write(lambda transaction: transaction.one(Item, "take_item", id=2)) == Item(2, "b")
    assert await database.write(lambda transaction: transaction.one(Item, "take_item", id=2)) is None
    assert await database.write(lambda transaction: transaction.run("take_item", id=9)) == 0
    await database.close()


async def test_the_clock_is_read_for_each_body() -> None:
    """A body sees the time at which it starts, not the time at which it was queued."""

    class Ticking(SystemClock):
        time = 100

        def now_ms(self) -> int:
            self.time += 1
            return self.time

    database = await open_database(clock=Ticking())
    times = await queue_behind(database, Gate(), *[lambda transaction: transaction.now_ms] * 3)
    assert times == [102, 103, 104]
    assert database.read(lambda reader: reader.now_ms) == 105
    await database.close()


@pytest.mark.parametrize("parameters", [{"id": 1}, {"id": 1, "label": "x", "colour": "red"}, {}])
async def test_parameters_must_match(parameters: dict[str, int | str]) -> None:
    """A missing or surplus parameter is refused before the statement runs."""
    database = await open_database()
    with pytest.raises(TypeError, match="insert_item"):
        await database.write(lambda transaction: transaction.run("insert_item", **parameters))
    assert database.read(ids) == []
    await database.close()


async def test_unknown_queries_and_tables() -> None:
    """An undefined query, and a query of a missing table, raise errors with their names."""
    database = await open_database()
    with pytest.raises(LookupError, match="nonsense"):
        await database.write(lambda transaction: transaction.run("nonsense"))
    with pytest.raises(SchemaMismatch, match="no_such_table"):
        database.read(lambda reader: reader.all(Item, "no_such_table"))
    await database.close()


@pytest.mark.parametrize("value", [2**63, "\ud800", object()])
async def test_values_that_cannot_be_stored(value: str) -> None:
    """A value that SQLite cannot hold is the caller's mistake, and nothing is written."""
    database = await open_database()
    with pytest.raises(InvalidInput, match="insert_item") as caught:
        await database.write(insert(1, value))
    assert caught.value.__cause__ is not None
    assert database.read(ids) == []
    await database.close()


async def test_rows_that_do_not_fit() -> None:
    """A stored row of another shape, or a surplus row, raises CorruptData with the name of the query."""
    database = await open_database()
    await database.write(insert(1))
    with pytest.raises(CorruptData, match="odd_row"):
        database.read(lambda reader: reader.one(Item, "odd_row"))
    with pytest.raises(CorruptData, match="odd_row"):
        database.read(lambda reader: reader.all(Item, "odd_row"))
    await database.write(insert(2))
    with pytest.raises(CorruptData, match="items returned 2 rows"):
        database.read(lambda reader: reader.one(Item, "items"))
    await database.close()


async def test_a_broken_constraint() -> None:
    """A violated constraint raises CorruptData: the plan and the stored rows contradict each other."""
    database = await open_database()
    await database.write(insert(1))
    with pytest.raises(CorruptData, match="contradicts"):
        await database.write(insert(1))
    await database.close()


async def test_no_use_after_the_body() -> None:
    """A reader or transaction cannot be used after its body has returned."""
    kept: list[Reader] = []
    database = await open_database()
    await database.write(kept.append)
    database.read(kept.append)
    for scope in kept:
        with pytest.raises(ConfigError, match="after its body"):
            scope.all(Item, "items")
    await database.close()


async def test_a_body_may_raise_stop_iteration() -> None:
    """An exception that a future cannot carry still reaches the caller, as a RuntimeError."""

    def stop(_transaction: Transaction) -> None:
        raise StopIteration

    database = await open_database()
    with pytest.raises(RuntimeError) as caught:
        await database.write(stop)
    assert isinstance(caught.value.__cause__, StopIteration)
    results = await queue_behind(database, Gate(), insert(1))
    assert results == [1]
    await database.close()
