"""Laws of records in a commit: they land with it, whole or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lash.errors import (
    CommitTooLarge,
    InvalidInput,
    RecordConflict,
    RevisionConflict,
    SessionBindingMismatch,
    TurnConflict,
)
from lash.model.record import RecordChange, RecordDelete, RecordPut
from lash.model.session.commit import Commit, CommitBudget, ReplaceFull
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.session import acquired, commit, created, node, owner


def own(key: str, value: object, version: int | None = None, **others: Any) -> RecordPut:  # noqa: ANN401 (fields)
    """Return a put of a record of session "s"."""
    return RecordPut(collection="c", key=key, value=value, session_id="s", expected_version=version, **others)  # type: ignore[arg-type]


def shared(key: str, value: object, version: int | None = None) -> RecordPut:
    """Return a put of a record of the storage."""
    return RecordPut(collection="c", key=key, value=value, expected_version=version)  # type: ignore[arg-type]


def saying(revision: int, *records: RecordChange, after: str | None = None, turn_id: str | None = None) -> Commit:
    """Return a commit of one node with changes of records."""
    return commit(revision, node(f"n{revision}", after), turn_id=turn_id, records=records)


async def stored(storage: Storage) -> dict[tuple[bool, str], tuple[object, int]]:
    """Return all records of session "s" and of the storage: value and version by owner and key."""
    found: dict[tuple[bool, str], tuple[object, int]] = {}
    for session_id in (None, "s"):
        for record in await storage.records.list("c", session_id=session_id):
            found[session_id is not None, record.key] = (record.value, record.version)
    return found


class TestRecordCommit:
    """Laws of records in a commit."""

    async def test_records_land_with_the_commit(self, harness: Harness) -> None:
        """Puts and deletes of the session's and of the storage's records are there when the commit is."""
        storage = await harness.open()
        session = await created(storage)
        await storage.records.put("c", "old", 1)
        await session.commit(saying(0, own("a", {"n": 1}, 0, index={"f": "x"}), shared("a", b"\xff"), shared("b", 1)))
        assert await stored(storage) == {
            (True, "a"): ({"n": 1}, 1),
            (False, "a"): (b"\xff", 1),
            (False, "b"): (1, 1),
            (False, "old"): (1, 1),
        }
        gone = (RecordDelete(collection="c", key="old"), RecordDelete(collection="c", key="a", expected_version=1))
        await session.commit(saying(1, *gone, own("a", 2, 1, ttl_ms=5), shared("b", 2), after="n0"))
        assert await stored(storage) == {(True, "a"): (2, 2), (False, "b"): (2, 2)}
        assert await storage.records.list("c", session_id="s", where={"f": "x"}) == ()
        await harness.clock.advance(5)
        assert await stored(storage) == {(False, "b"): (2, 2)}
        await session.commit(saying(2, own("a", 3, 0), after="n1"))
        assert (await stored(storage))[True, "a"] == (3, 1)

    async def test_a_conflict_refuses_the_commit(self, harness: Harness) -> None:
        """A record with another version than expected leaves head, nodes and all other records as they were."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(saying(0, own("a", 1), shared("a", 1)))
        before = await stored(storage), await session.load()
        for wrong in (own("a", 2, 0), own("a", 2, 2), shared("a", 2, 2), shared("new", 2, 1)):
            with pytest.raises(RecordConflict) as raised:
                await session.commit(saying(1, shared("b", 1), own("b", 1), wrong, after="n0"))
            assert (raised.value.session_id, raised.value.key) == (wrong.session_id, wrong.key)
            assert raised.value.expected == wrong.expected_version
        assert (await stored(storage), await session.load()) == before
        assert (await session.commit(saying(1, own("a", 2, 1), after="n0"))).revision == 2

    async def test_another_conflict_leaves_the_records_alone(self, harness: Harness) -> None:
        """A commit on another revision changes no record."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(saying(0, own("a", 1)))
        with pytest.raises(RevisionConflict):
            await session.commit(saying(0, own("a", 2), shared("a", 2)))
        assert await stored(storage) == {(True, "a"): (1, 1)}

    async def test_a_repeated_turn_changes_records_once(self, harness: Harness) -> None:
        """The same turn with the same records is applied once; with other records it is another commit."""
        storage = await harness.open()
        session = await created(storage)
        first = saying(0, own("a", 1, 0), shared("a", 1), turn_id="t")
        result = await session.commit(first)
        assert await session.commit(first) == result
        assert await stored(storage) == {(True, "a"): (1, 1), (False, "a"): (1, 1)}
        others: list[tuple[RecordChange, ...]] = [
            (),
            (own("a", 1, 0),),
            (own("a", 2, 0), shared("a", 1)),
            (own("a", 1, 0), shared("b", 1)),
            (own("a", 1, 0, index={"f": "x"}), shared("a", 1)),
            (own("a", 1, 0), RecordDelete(collection="c", key="a")),
        ]
        for records in others:
            with pytest.raises(TurnConflict):
                await session.commit(saying(0, *records, turn_id="t"))

    async def test_records_land_with_a_lease_and_a_replaced_graph(self, harness: Harness) -> None:
        """A commit under a fence, and one that replaces the graph, change records too."""
        storage = await harness.open()
        session = await created(storage)
        lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=60_000))
        fenced = commit(0, node("n0"), fence=lease.fence, release=lease.fence, records=(own("a", 1),))
        await session.commit(fenced)
        whole = ReplaceFull(nodes=(node("m"),), leaf_node_id="m", replaced_node_count=1)
        replaced = Commit(session_id="s", expected_revision=1, graph=whole, records=(own("a", 2, 1), shared("a", 1, 0)))
        await session.commit(replaced)
        assert await stored(storage) == {(True, "a"): (2, 2), (False, "a"): (1, 1)}

    async def test_sessions_share_records_of_the_storage(self, harness: Harness) -> None:
        """Concurrent commits of several sessions to one record of the storage are all counted."""
        storage = await harness.open()
        sessions = [await created(storage, f"s{number}") for number in range(6)]

        async def count(position: int) -> None:
            blind = RecordPut(collection="c", key="blind", value=position)
            while True:
                found = await storage.records.get("c", "sum")
                value, version = (found.value, found.version) if found is not None else (0, 0)
                assert isinstance(value, int)
                total = RecordPut(collection="c", key="sum", value=value + 1, expected_version=version)
                session_id = sessions[position].session_id
                try:
                    await sessions[position].commit(
                        Commit(session_id=session_id, expected_revision=0, records=(blind, total))
                    )
                except RecordConflict:
                    continue
                return

        await asyncio.gather(*(count(position) for position in range(len(sessions))))
        counted, blind = await storage.records.get("c", "sum"), await storage.records.get("c", "blind")
        assert counted is not None
        assert blind is not None
        assert (counted.value, counted.version, blind.version) == (6, 6, 6)

    async def test_what_cannot_be_a_change_is_refused(self, harness: Harness) -> None:
        """A record of another session, a record twice, a wrong kind and a wrong value refuse the commit."""
        storage = await harness.open()
        session = await created(storage)
        await created(storage, "other")
        foreign = RecordPut(collection="c", key="k", value=1, session_id="other")
        with pytest.raises(SessionBindingMismatch):
            await session.commit(saying(0, foreign))
        wrong: tuple[Any, ...] = (
            *((own("a", 1), own("a", 2)), (1,), "x", ({"collection": "c"},)),
            (own("a", float("nan")),),
        )
        for records in wrong:
            with pytest.raises(InvalidInput):
                await session.commit(Commit(session_id="s", expected_revision=0, records=records))
        assert await session.head() is None
        assert await stored(storage) == {}

    async def test_records_count_in_the_budget(self, harness: Harness) -> None:
        """Records are rows and bytes of the commit's budget."""
        storage = await harness.open(budget=CommitBudget(max_rows=2, max_bytes=1_000))
        session = await created(storage)
        for records in ([own(str(number), 1) for number in range(3)], [own("a", "x" * 1_000)]):
            with pytest.raises(CommitTooLarge):
                await session.commit(Commit(session_id="s", expected_revision=0, records=tuple(records)))
