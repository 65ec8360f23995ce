"""Sweep cases of artifacts, attachments, activity, maintenance and the rows of a move."""

from __future__ import annotations

from lash.errors import Conflict
from lash.model.activity import ActivityDraft
from lash.model.artifact import ProcessEnvironment
from lash.model.attachment import AttachmentEntry
from lash.model.queue import Boundary
from lash.model.session.message import AttachmentRef
from lash.stores.storage import Storage
from lash.stores.table_rows import HasRows, RowStore, RowTable
from lash.testing.clock import ManualClock
from tests.contract.queue_state import claimed, consuming, late, leased, queued
from tests.factories.session import commit, created, node, started
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case, bare

DAY_MS = 86_400_000
ENVIRONMENT = ProcessEnvironment(body={"python": "3"})
SHOWN = (ActivityDraft(turn_id="t", payload={"text": "hel"}), ActivityDraft(turn_id="t", payload={"text": "lo"}))


async def nobody_owns(_entry: AttachmentEntry) -> bool:
    """Report that the process that put an attachment is gone."""
    return True


async def kept(storage: Storage, _clock: ManualClock) -> str:
    return await storage.artifacts.put("space", b"artifact")


async def session(storage: Storage, _clock: ManualClock) -> None:
    await created(storage)


async def attached(storage: Storage, clock: ManualClock) -> AttachmentRef:
    """An attachment that no commit names, announced a while ago."""
    await created(storage)
    ref = await storage.attachments.put("s", b"picture", "image/png")
    await clock.advance(1_000)
    return ref


async def shown(storage: Storage, clock: ManualClock) -> None:
    await created(storage)
    await storage.activity.append("s", SHOWN)
    await clock.advance(200_000)


async def left_over(storage: Storage, clock: ManualClock) -> None:
    """An environment that no process names and that was not put for a day."""
    await storage.artifacts.put_environment(ENVIRONMENT)
    await clock.advance(2 * DAY_MS)


async def consumed(storage: Storage, clock: ManualClock) -> None:
    """A turn that was committed and a source key that was consumed, a while ago."""
    await started(storage, "s")
    await queued(storage, late("x", source_key="k"))
    claim = claimed(await storage.queue.claim(await leased(storage), boundary=Boundary.IDLE, ttl_ms=60_000))
    await storage.session("s").commit(consuming(commit(1, node("b", "a"), turn_id="t"), claim))
    await clock.advance(1_000)


def rows_of(storage: Storage) -> RowStore:
    assert isinstance(storage, HasRows)
    return storage.rows


def tombstones(storage: Storage) -> RowTable:
    return next(table for table in rows_of(storage).tables if table.name == "lash_session_ids")


async def moving(storage: Storage, _clock: ManualClock) -> None:
    await rows_of(storage).begin(b"first")


ROW: dict[str, int | str] = {"session_id": "gone", "revision": 3, "fencing": 4, "deleted_at_ms": 5}

ARTIFACTS: tuple[AnyCase, ...] = (
    Case(
        method="ArtifactStore.put",
        ground=bare,
        call=lambda storage, _: storage.artifacts.put("space", b"artifact" * 1_000),
        again=Again.SAME,
    ),
    Case(
        method="ArtifactStore.put_environment",
        ground=bare,
        call=lambda storage, _: storage.artifacts.put_environment(ENVIRONMENT),
        again=Again.SAME,
    ),
    Case(
        method="ArtifactStore.delete",
        ground=kept,
        call=lambda storage, ref: storage.artifacts.delete("space", ref),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
)

ATTACHMENTS: tuple[AnyCase, ...] = (
    Case(
        method="AttachmentStore.put",
        ground=session,
        call=lambda storage, _: storage.attachments.put("s", b"picture", "image/png", label="l"),
        again=Again.SAME,
        blur=r'"version": ?\d+',
        steps="it is announced before its bytes are written, so that a sweep knows of them",
    ),
    Case(
        method="AttachmentStore.commit_refs",
        ground=attached,
        call=lambda storage, ref: storage.attachments.commit_refs("s", [ref.id]),
        again=Again.SAME,
    ),
    Case(
        method="AttachmentStore.forget",
        ground=attached,
        call=lambda storage, ref: storage.attachments.forget("s", ref.id),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="AttachmentStore.sweep",
        ground=attached,
        call=lambda storage, _: storage.attachments.sweep(0, nobody_owns),
        again=Again.REPORTED,
        steps="bytes may lie outside the database: a fence guards each phase of their deletion",
        blur=r'"version": ?\d+|"sweeper": ?("([^"\\]|\\.)*"|null)',
        lost=REPEATED,
    ),
)

MAINTENANCE: tuple[AnyCase, ...] = (
    Case(
        method="Maintenance.collect_garbage",
        ground=left_over,
        call=lambda storage, _: storage.maintenance.collect_garbage(),
        again=Again.REPORTED,
    ),
    Case(
        method="Maintenance.prune_turns",
        ground=consumed,
        call=lambda storage, _: storage.maintenance.prune_turns(older_than_ms=500),
        again=Again.REPORTED,
    ),
    Case(
        method="Maintenance.prune_source_keys",
        ground=consumed,
        call=lambda storage, _: storage.maintenance.prune_source_keys(older_than_ms=500),
        again=Again.REPORTED,
    ),
    Case(
        method="Maintenance.prune_activity",
        ground=shown,
        call=lambda storage, _: storage.maintenance.prune_activity(),
        again=Again.REPORTED,
    ),
)

ROWS: tuple[AnyCase, ...] = (
    Case(
        method="RowStore.begin",
        ground=bare,
        call=lambda storage, _: rows_of(storage).begin(b"first"),
        again=Conflict,
    ),
    Case(
        method="RowStore.write",
        ground=moving,
        call=lambda storage, _: rows_of(storage).write(
            tombstones(storage),
            [tuple(ROW[column] for column in tombstones(storage).columns)],
            before=b"first",
            mark=b"second",
        ),
        again=Conflict,
    ),
    Case(
        method="RowStore.finish",
        ground=moving,
        call=lambda storage, _: rows_of(storage).finish({"lash_sessions": 7}, before=b"first"),
        again=Conflict,
    ),
)

CASES: tuple[AnyCase, ...] = (
    *ARTIFACTS,
    *ATTACHMENTS,
    Case(
        method="ActivityStore.append",
        ground=session,
        call=lambda storage, _: storage.activity.append("s", SHOWN),
        again=Again.MORE,
        steps="on PostgreSQL the first item of a session begins the numbering in a statement of its own",
    ),
    *MAINTENANCE,
    *ROWS,
)
