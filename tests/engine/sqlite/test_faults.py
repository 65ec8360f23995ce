from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from lash.errors import CorruptData, RevisionConflict, StorageFailure, StoreUnavailable
from lash.sqlite.engine.database import Transaction
from tests.engine.sqlite.kit import (
    Count,
    Gate,
    create_tables,
    ids,
    insert,
    open_database,
    queue_behind,
    write_then_refuse,
)


class Faults:
    """Raises an error before the n-th statement of a name."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._plan: dict[tuple[str, int], BaseException] = {}

    def __call__(self, name: str) -> None:
        self.names.append(name)
        error = self._plan.pop((name, self.names.count(name)), None)
        if error is not None:
            raise error

    def add(self, name: str, error: BaseException, *, skip: int = 0) -> None:
        """Fail the next statement of this name, after so many good ones."""
        self._plan[name, self.names.count(name) + 1 + skip] = error


class Unplugged(BaseException):
    """Not an `Exception`: it would end a thread that does not catch it."""


async def test_a_lost_transaction_costs_only_the_culprit(tmp_path: Path) -> None:
    """When SQLite rolls the transaction back, the other bodies of the group run again and keep their writes."""
    database = await open_database(tmp_path / "x.db")
    await database.write(insert(7))

    def give_up(transaction: Transaction) -> None:
        transaction.run("insert_item", id=50, label="gone")
        transaction.run("insert_or_give_up", id=7, label="twice")

    results = await queue_behind(database, Gate(), insert(1), give_up, insert(2))
    assert results[0] == results[2] == 1
    assert isinstance(results[1], CorruptData)
    assert database.read(ids) == [1, 2, 7]
    await database.close()


async def test_a_swallowed_loss_is_still_a_failure(tmp_path: Path) -> None:
    """A body that continues after its transaction was lost writes nothing, and its caller gets the error."""
    database = await open_database(tmp_path / "x.db")
    await database.write(insert(7))

    def swallow(transaction: Transaction) -> None:
        with suppress(CorruptData):
            transaction.run("insert_or_give_up", id=7, label="twice")
        with suppress(CorruptData):
            transaction.run("insert_item", id=8, label="stray")

    with pytest.raises(CorruptData, match="insert_or_give_up"):
        await database.write(swallow)
    assert database.read(ids) == [7]
    await database.close()


async def test_a_failed_commit_fails_everybody(tmp_path: Path) -> None:
    """An I/O error at COMMIT leaves the outcome unknown for the whole group, and the next write works."""
    faults = Faults()
    database = await open_database(tmp_path / "x.db", hook=faults)
    # The first commit is the gate's.
    faults.add("commit", apsw.IOError("disk I/O error"), skip=1)
    results = await queue_behind(database, Gate(), insert(1), insert(2))
    for result in results:
        assert isinstance(result, StorageFailure)
        assert result.outcome_unknown
        assert isinstance(result.__cause__, apsw.IOError)
    assert await database.write(insert(3)) == 1
    assert database.read(ids) == [3]
    await database.close()


async def test_a_body_keeps_its_own_error_when_the_commit_fails(tmp_path: Path) -> None:
    """A body that had already failed keeps its own error, whose outcome is known."""
    faults = Faults()
    database = await open_database(tmp_path / "x.db", hook=faults)
    await database.write(insert(1))
    faults.add("commit", apsw.FullError("database or disk is full"), skip=1)
    results = await queue_behind(database, Gate(), insert(1), insert(2))
    assert isinstance(results[0], CorruptData)
    assert isinstance(results[1], StorageFailure)
    assert not results[1].outcome_unknown
    await database.close()


async def test_a_deferred_constraint_costs_only_the_culprit(tmp_path: Path) -> None:
    """A foreign key that is checked at COMMIT fails the body that broke it, not its neighbours."""
    database = await open_database(tmp_path / "x.db")

    def orphan(transaction: Transaction) -> int:
        return transaction.run("insert_child", id=50, parent=999)

    results = await queue_behind(database, Gate(), insert(1), orphan, insert(2))
    assert results[0] == results[2] == 1
    assert isinstance(results[1], CorruptData)
    assert database.read(ids) == [1, 2]
    await database.close()


_ERRORS = pytest.mark.parametrize(
    ("error", "expected"),
    [
        (apsw.BusyError("database is locked"), StoreUnavailable),
        (apsw.FullError("database or disk is full"), StorageFailure),
        (apsw.CorruptError("malformed"), CorruptData),
        (ZeroDivisionError("a bug"), ZeroDivisionError),
        (Unplugged(), Unplugged),
    ],
)


@pytest.mark.parametrize("name", ["begin", "insert_item", "commit"])
@_ERRORS
async def test_every_statement_may_fail(
    tmp_path: Path, name: str, error: BaseException, expected: type[BaseException]
) -> None:
    """Whichever statement fails, an error of lash is raised, nothing is written, and the next write works."""
    faults = Faults()
    database = await open_database(tmp_path / "x.db", hook=faults)
    faults.add(name, error)
    with pytest.raises(expected):
        await database.write(insert(1))
    assert database.read(ids) == []
    assert await database.write(insert(2)) == 1
    assert database.read(ids) == [2]
    await database.close()


@_ERRORS
async def test_the_statement_of_a_body_in_a_group_may_fail(
    tmp_path: Path, error: BaseException, expected: type[BaseException]
) -> None:
    """When a statement of a body fails, only its caller gets the error, and the others keep their writes."""
    faults = Faults()
    database = await open_database(tmp_path / "x.db", hook=faults)
    faults.add("insert_item", error)
    results = await queue_behind(database, Gate(), insert(1), insert(2), insert(3))
    assert isinstance(results[0], expected)
    assert results[1:] == [1, 1]
    assert database.read(ids) == [2, 3]
    await database.close()


@pytest.mark.parametrize("name", ["savepoint", "release"])
@_ERRORS
async def test_a_savepoint_may_fail(
    tmp_path: Path, name: str, error: BaseException, expected: type[BaseException]
) -> None:
    """The same holds for the savepoints of a group after one of its bodies failed half-way."""
    faults = Faults()
    database = await open_database(tmp_path / "x.db", hook=faults)
    faults.add(name, error)
    results = await queue_behind(database, Gate(), insert(1), insert(2), insert(3), write_then_refuse)
    assert isinstance(results[0], expected)
    assert results[1:3] == [1, 1]
    assert isinstance(results[3], RevisionConflict)
    assert database.read(ids) == [2, 3]
    await database.close()


async def test_undoing_may_fail_too(tmp_path: Path) -> None:
    """When a savepoint cannot be rolled back, the transaction is, and the others run again."""
    faults = Faults()
    database = await open_database(tmp_path / "x.db", hook=faults)
    # The first one gives up the transaction without savepoints.
    faults.add("rollback", apsw.IOError("disk I/O error"), skip=1)
    results = await queue_behind(database, Gate(), insert(1), write_then_refuse, insert(2))
    assert results[0] == results[2] == 1
    assert isinstance(results[1], RevisionConflict)
    assert database.read(ids) == [1, 2]
    # Twice up to the one that fails, then without it.
    assert faults.names.count("insert_item") == 2 + 2 + 2
    await database.close()


@pytest.mark.parametrize("error", [apsw.BusyError("locked"), apsw.IOError("disk I/O error"), ZeroDivisionError()])
async def test_a_failed_checkpoint_hurts_nobody(tmp_path: Path, error: Exception) -> None:
    """The next checkpoint makes up for a failed one; the callers had their outcomes before."""
    faults = Faults()
    database = await open_database(tmp_path / "x.db", hook=faults)
    faults.add("checkpoint", error)
    for _ in range(2):
        await database.write(lambda transaction: transaction.run("insert_bulk", payload=bytes(5_000_000)))
    await database.write(insert(1))
    assert faults.names.count("checkpoint") == 2
    assert database.read(ids) == [1]
    await database.close()


async def test_a_full_database(tmp_path: Path) -> None:
    """A file that may not grow refuses the body that is too big, and accepts small ones."""

    def create_small(connection: apsw.Connection, new: bool) -> None:  # noqa: FBT001
        create_tables(connection, new)
        connection.pragma("max_page_count", 20)

    database = await open_database(tmp_path / "x.db", prepare=create_small)

    def fill(transaction: Transaction) -> int:
        return transaction.run("insert_bulk", payload=bytes(200_000))

    results = await queue_behind(database, Gate(), insert(1), fill, insert(2))
    assert results[0] == results[2] == 1
    assert isinstance(results[1], StorageFailure)
    assert database.read(ids) == [1, 2]
    await database.close()


@contextmanager
def files_may_not_exceed(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_refuses_the_commit(tmp_path: Path) -> None:
    """A real failure to write the log fails the write; writes work again once the disk does."""
    database = await open_database(tmp_path / "x.db")
    await database.write(insert(1))
    with files_may_not_exceed((tmp_path / "x.db-wal").stat().st_size + 8192):
        with pytest.raises(StorageFailure) as caught:
            await database.write(lambda transaction: transaction.run("insert_bulk", payload=bytes(500_000)))
        assert isinstance(caught.value.__cause__, apsw.Error)
    assert await database.write(insert(2)) == 1
    assert database.read(ids) == [1, 2]
    await database.close()
    with_fresh_eyes = await open_database(tmp_path / "x.db")
    assert with_fresh_eyes.read(ids) == [1, 2]
    assert with_fresh_eyes.read(lambda reader: reader.one(Count, "count_items")) == Count(2)
    await with_fresh_eyes.close()
