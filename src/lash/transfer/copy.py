"""Copies a storage into another one, on either backend."""

from __future__ import annotations

from collections import Counter
from typing import Final

from lash.errors import Conflict, InvalidInput, LashError, NotFound, SessionDeleted
from lash.model.artifact import ArtifactRef
from lash.model.attachment import StoredAttachment
from lash.model.process.process import SessionOriginator
from lash.model.session.message import AttachmentRef
from lash.model.trigger.schedule import Schedule
from lash.model.trigger.trigger import TriggerOwner, TriggerSubscription
from lash.model.value import Count, Value
from lash.stores.storage import Storage
from lash.transfer.pages import PAGE, pages
from lash.transfer.progress import Meter, OnProgress
from lash.transfer.record import copy_records
from lash.transfer.snapshot import take
from lash.transfer.write import SessionWriter

NEVER_COPIED: Final = ("activity", "effect", "event", "grant", "turn", "wait")
"""Nouns that are not copied, besides processes and dead letters."""
_REFUSALS: Final = (Conflict, InvalidInput, NotFound, SessionDeleted)


class NotCopied(Value, frozen=True, kw_only=True):
    """An object that was not copied, and the reason."""

    noun: str
    name: str
    reason: str


class CopyReport(Value, frozen=True, kw_only=True):
    """The counts of a copy by noun. ``skipped``: already there and equal; ``refused``: other content under its name.

    ``never_copied`` counts what the source has and no copy includes: processes and dead letters exactly, other nouns by
    their rows, which are estimates on PostgreSQL.
    """

    copied: dict[str, Count]
    skipped: dict[str, Count]
    refused: tuple[NotCopied, ...]
    never_copied: dict[str, Count]

    @property
    def is_complete(self) -> bool:
        """Whether the target now has everything that can be copied."""
        return not self.refused


async def copy_storage(source: Storage, target: Storage, *, progress: OnProgress | None = None) -> CopyReport:
    """Copy artifacts, sessions with all that is theirs, records of the storage, triggers and schedules, in this order.

    It can be killed and run again: objects that are equal in the target are skipped. Objects that differ are left
    unchanged and reported. Stop all workers of the source and the target first, or changes are missed and the
    same work is done on both sides. Trouble with a database ends it.
    """
    copy = _Copy(source, target, progress)
    await copy.artifacts()
    await copy.sessions()
    await copy.records()
    await copy.triggers()
    await copy.schedules()
    return await copy.report()


class _Copy:
    """One run of a copy."""

    def __init__(self, source: Storage, target: Storage, progress: OnProgress | None) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._copied: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._refused: list[NotCopied] = []

    async def report(self) -> CopyReport:
        nouns = (await self._source.report()).nouns
        left: dict[str, int] = {noun: nouns[noun].rows for noun in NEVER_COPIED if noun in nouns}
        left |= {"process": await self._processes(), "dead_letter": await self._dead_letters()}
        return CopyReport(
            copied=dict(+self._copied),
            skipped=dict(+self._skipped),
            refused=tuple(self._refused),
            never_copied={noun: count for noun, count in left.items() if count},
        )

    async def _processes(self) -> int:
        listed = pages(lambda cursor: self._source.processes.list(limit=PAGE, cursor=cursor))
        return sum([len(page.processes) async for page in listed])

    async def _dead_letters(self) -> int:
        count, after = 0, None
        while letters := await self._source.queue.dead(limit=PAGE, after=after):
            count, after = count + len(letters), letters[-1].position
        return count

    async def artifacts(self) -> None:
        meter = Meter("artifact", None, self._progress)
        for namespace in await self._source.artifacts.namespaces():
            await self._namespace(namespace, meter)

    async def _namespace(self, namespace: str, meter: Meter) -> None:
        async for page in pages(lambda cursor: self._source.artifacts.list(namespace, limit=PAGE, cursor=cursor)):
            for summary in page.artifacts:
                await self._artifact(namespace, summary.ref)
                meter.step()

    async def _artifact(self, namespace: str, ref: ArtifactRef) -> None:
        is_there = await self._target.artifacts.exists(namespace, ref)
        if not is_there:
            await self._target.artifacts.put(namespace, await self._source.artifacts.get(namespace, ref))
        self._note("artifact", created=not is_there)

    async def sessions(self) -> None:
        """Copy the oldest first, so that both storages list them in the same order."""
        session_ids: list[str] = []
        async for page in pages(lambda cursor: self._source.sessions.list(limit=PAGE, cursor=cursor)):
            session_ids.extend(summary.meta.session_id for summary in page.sessions)
        meter = Meter("session", len(session_ids), self._progress)
        for session_id in reversed(session_ids):
            try:
                await self._session(session_id)
            except _REFUSALS as error:
                self._refuse("session", session_id, error)
            meter.step()

    async def _session(self, session_id: str) -> None:
        snapshot = (await take(self._source, session_id, with_queue=True)).snapshot

        async def get(ref: AttachmentRef) -> StoredAttachment:
            return await self._source.attachments.get(session_id, ref.id)

        attachments = Meter("attachment", len(snapshot.attachments) + 1, None)
        written = await SessionWriter(self._target, session_id, snapshot, get).write(attachments)
        self._note("session", created=written.created)
        noted = self._copied if written.created else self._skipped
        noted["attachment"] += len(snapshot.attachments)
        noted["record"] += len(snapshot.records)
        self._copied["batch"] += written.batches_added
        self._skipped["batch"] += len(snapshot.batches) - written.batches_added

    async def records(self) -> None:
        """Copy the records that belong to no session."""
        counts, differing = await copy_records(self._source, self._target)
        self._copied["record"] += counts["copied"]
        self._skipped["record"] += counts["skipped"]
        reason = "the target has another value under its name"
        self._refused.extend(NotCopied(noun="record", name=name, reason=reason) for name in differing)

    async def triggers(self) -> None:
        found: list[TriggerSubscription] = []
        async for page in pages(lambda cursor: self._source.triggers.list(limit=PAGE, cursor=cursor)):
            found.extend(page.subscriptions)
            self._note_damaged("trigger", page.damaged)
        meter = Meter("trigger", len(found), self._progress)
        for subscription in reversed(found):
            try:
                await self._trigger(subscription)
            except _REFUSALS as error:
                self._refuse("trigger", subscription.key, error)
            meter.step()

    async def _trigger(self, wanted: TriggerSubscription) -> None:
        self._require_owner(wanted.owner)
        registered = await self._target.triggers.register(wanted.definition)
        there = registered.subscription
        if there.enabled != wanted.enabled:
            _require_fresh(there.revision, enabled=there.enabled)
            await self._target.triggers.disable(there.owner, there.key, revision=there.revision)
        self._note("trigger", created=registered.created)

    async def schedules(self) -> None:
        found: list[Schedule] = []
        async for page in pages(lambda cursor: self._source.schedules.list(limit=PAGE, cursor=cursor)):
            found.extend(page.schedules)
            self._note_damaged("schedule", page.damaged)
        meter = Meter("schedule", len(found), self._progress)
        for schedule in found:
            try:
                await self._schedule(schedule)
            except _REFUSALS as error:
                self._refuse("schedule", schedule.key, error)
            meter.step()

    async def _schedule(self, wanted: Schedule) -> None:
        self._require_owner(wanted.owner)
        registered = await self._target.schedules.register(wanted.definition)
        there = registered.schedule
        if there.enabled != wanted.enabled:
            _require_fresh(there.revision, enabled=there.enabled)
            await self._target.schedules.disable(there.owner, there.key, revision=there.revision)
        self._note("schedule", created=registered.created)

    def _require_owner(self, owner: TriggerOwner) -> None:
        """Raise Conflict if the session of this id in the target is not the owner of the source."""
        refused = {each.name for each in self._refused if each.noun == "session"}
        if isinstance(owner, SessionOriginator) and owner.scope.session_id in refused:
            raise Conflict(f"its session {owner.scope.session_id!r} was not copied")

    def _note(self, noun: str, *, created: bool) -> None:
        (self._copied if created else self._skipped)[noun] += 1

    def _note_damaged(self, noun: str, names: tuple[str, ...]) -> None:
        self._refused.extend(NotCopied(noun=noun, name=name, reason="it cannot be read") for name in names)

    def _refuse(self, noun: str, name: str, error: LashError) -> None:
        self._refused.append(NotCopied(noun=noun, name=name, reason=str(error)))


def _require_fresh(revision: int, *, enabled: bool) -> None:
    """Raise Conflict unless the target is in the state after a registration: then an earlier copy was interrupted."""
    if revision > 1 or not enabled:
        raise Conflict(f"it is {'enabled' if enabled else 'disabled'} in the target; it was changed there")
