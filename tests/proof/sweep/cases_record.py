"""Sweep cases of records."""

from __future__ import annotations

from lash.errors import RecordConflict
from lash.model.record import RecordDelete, RecordPut
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.factories.session import created
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case

PUTS = (
    RecordPut(collection="c", key="k", value={"n": 2}, session_id="s", expected_version=1, index={"f": "y"}),
    RecordPut(collection="c", key="k", value=b"bytes", ttl_ms=1_000),
    RecordPut(collection="d", key="new", value=1, expected_version=0),
)
DELETES = (
    RecordDelete(collection="c", key="k", session_id="s"),
    RecordDelete(collection="c", key="k"),
    RecordDelete(collection="c", key="unknown"),
)


async def stored(storage: Storage, _clock: ManualClock) -> None:
    """A record of a session and one of the storage, under the same name."""
    await created(storage)
    for session_id in ("s", None):
        await storage.records.put("c", "k", 1, session_id=session_id, index={"f": "x"})


async def expired(storage: Storage, clock: ManualClock) -> None:
    """Two records that expired and one that did not."""
    for key, ttl_ms in (("a", 10), ("b", 20), ("kept", 10_000)):
        await storage.records.put("c", key, key, ttl_ms=ttl_ms)
    await clock.advance(1_000)


CASES: tuple[AnyCase, ...] = (
    Case(
        method="RecordStore.put",
        ground=stored,
        call=lambda storage, _: storage.records.put("c", "k", {"n": 2}, session_id="s", index={"f": "y"}),
        again=Again.MORE,
    ),
    Case(
        method="RecordStore.put",
        variant="new",
        ground=stored,
        call=lambda storage, _: storage.records.put("c", "new", 1, expected_version=0),
        again=RecordConflict,
    ),
    Case(
        method="RecordStore.put_many",
        ground=stored,
        call=lambda storage, _: storage.records.put_many(PUTS),
        again=RecordConflict,
    ),
    Case(
        method="RecordStore.delete",
        ground=stored,
        call=lambda storage, _: storage.records.delete("c", "k", session_id="s"),
        again=Again.REPORTED,
    ),
    Case(
        method="RecordStore.delete_many",
        ground=stored,
        call=lambda storage, _: storage.records.delete_many(DELETES),
        again=Again.REPORTED,
    ),
    Case(
        method="RecordStore.prune",
        ground=expired,
        call=lambda storage, _: storage.records.prune(),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
)
