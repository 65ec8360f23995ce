"""One sweep of attachments: first the manifest, then the bytes that no session names."""

from __future__ import annotations

from collections import Counter
from typing import Final

from lash.backend.liveness import current_process, is_provably_dead
from lash.base.codec import encode
from lash.base.ids import new_id
from lash.errors import LashError, StoreError, SweepIncomplete
from lash.model.attachment import AttachmentEntry, SweepProblem, SweepReport
from lash.plan.attachment import (
    FIRST_PAGE,
    AttachmentRow,
    ByteGuardRow,
    BytePhase,
    SweepRun,
    after,
    decode_entry,
    page_key,
    plan_failed_deletion,
    plan_removal,
    sweep_run_of,
)
from lash.stores.attachment import AttachmentManifest, ByteStore, IsOwnerGone

_PAGE: Final = 200
"""How many entries of the manifest one read returns."""
_GUARDS: Final = 1_000
"""How many byte guards one read examines: a sweep examines all of them, in short statements."""
_running: Final[set[str]] = set()
"""The running sweeps of this process, in any storage. A deletion by a sweep of this process that is not here was
abandoned."""


class Sweep:
    """One call of ``sweep``, and its report so far."""

    def __init__(
        self, manifest: AttachmentManifest, byte_store: ByteStore, is_owner_gone: IsOwnerGone, *, dry_run: bool
    ) -> None:
        self._manifest = manifest
        self._bytes = byte_store
        self._is_owner_gone = is_owner_gone
        self._dry_run = dry_run
        self._sweeper = SweepRun(sweep_id=new_id(), process=current_process())
        self._swept: list[AttachmentEntry] = []
        self._kept: list[AttachmentEntry] = []
        self._refused: list[SweepProblem] = []
        self._failed: list[SweepProblem] = []
        self._deleted: dict[str, int] = {}
        self._stale_files = 0

    async def run(self, older_than_ms: int) -> SweepReport:
        """Sweep once; return the report, or raise SweepIncomplete with it."""
        _running.add(self._sweeper.sweep_id)
        try:
            await self._sweep_manifest(older_than_ms)
            await self._sweep_bytes()
            if not self._dry_run:
                self._stale_files = await self._bytes.sweep_stale()
        except StoreError as error:
            raise SweepIncomplete(f"a sweep of attachments was interrupted: {error}", self._report()) from error
        finally:
            _running.discard(self._sweeper.sweep_id)
        if self._failed:
            first = self._failed[0].reason
            message = f"a sweep could not delete the bytes of {len(self._failed)} attachments; the first: {first}"
            raise SweepIncomplete(message, self._report())
        return self._report()

    def _report(self) -> SweepReport:
        return SweepReport(
            dry_run=self._dry_run,
            swept=tuple(self._swept),
            kept=tuple(self._kept),
            refused=tuple(self._refused),
            failed=tuple(self._failed),
            deleted=tuple(self._deleted),
            freed_bytes=sum(self._deleted.values()),
            stale_files=self._stale_files,
        )

    async def _sweep_manifest(self, older_than_ms: int) -> None:
        # Fixed at the start, so that attachments that are put again meanwhile do not extend the sweep.
        newest_ms = await self._manifest.now_ms() - older_than_ms
        after = FIRST_PAGE
        while rows := await self._manifest.uncommitted(newest_ms, after, _PAGE):
            for row in rows:
                await self._sweep_row(row)
            after = page_key(rows[-1])

    async def _sweep_row(self, row: AttachmentRow) -> None:
        entry = decode_entry(row)
        gone = await self._owner_is_gone(entry)
        if gone is None:
            return
        if gone and (self._dry_run or await self._manifest.drop(row)):
            self._swept.append(entry)
        else:
            self._kept.append(entry)

    async def _owner_is_gone(self, entry: AttachmentEntry) -> bool | None:
        """Return whether nothing can commit the attachment any more; None, reported as refused, if that is unknown."""
        owner = "every session that may commit it" if entry.owner is None else f"{entry.owner.kind} {entry.owner.id!r}"
        try:
            answer: object = await self._is_owner_gone(entry)
        except Exception as error:  # noqa: BLE001 (the application's code: no error there proves anything)
            reason = f"is_owner_gone failed for {owner}: {error!r}"
        else:
            if isinstance(answer, bool):
                return answer
            reason = f"is_owner_gone returned {answer!r:.80} for {owner}; expected True or False"
        self._refused.append(SweepProblem(attachment_id=entry.ref.id, session_id=entry.session_id, reason=reason))
        return None

    async def _sweep_bytes(self) -> None:
        if self._dry_run:
            await self._foresee_bytes()
        page = await self._manifest.unnamed("", _GUARDS)
        while page.last_id is not None:
            for guard in page.guards:
                if self._dry_run:
                    self._deleted[guard.attachment_id] = guard.byte_len
                else:
                    await self._remove(guard, page.now_ms)
            page = await self._manifest.unnamed(page.last_id, _GUARDS)

    async def _foresee_bytes(self) -> None:
        """Report the bytes that no session would name after this sweep."""
        swept = Counter(entry.ref.id for entry in self._swept)
        names = await self._manifest.names(sorted(swept))
        for entry in self._swept:
            if names.get(entry.ref.id) == swept[entry.ref.id]:
                self._deleted[entry.ref.id] = entry.ref.byte_len

    async def _remove(self, guard: ByteGuardRow, now_ms: int) -> None:
        """Take the guard through its phases while no other writer changes it, then delete the bytes."""
        is_dead = self._is_dead(sweep_run_of(guard))
        while (move := plan_removal(guard, sweeper_is_dead=is_dead, now_ms=now_ms)) is not None:
            holder = encode(self._sweeper, SweepRun, "sweeper") if move.to is BytePhase.DELETING else None
            if not await self._manifest.move(move, holder):
                return
            guard = after(move, guard, holder)
            if guard.phase is BytePhase.DELETING:
                await self._delete(guard)
                return

    def _is_dead(self, other: SweepRun | None) -> bool:
        """Return whether another sweep has provably ended."""
        own = self._sweeper.process
        if other is None or other.process is None or own is None:
            return False
        return is_provably_dead(other.process, own) or (other.process == own and other.sweep_id not in _running)

    async def _delete(self, guard: ByteGuardRow) -> None:
        try:
            await self._bytes.delete(guard.attachment_id)
        except LashError as error:
            self._failed.append(SweepProblem(attachment_id=guard.attachment_id, reason=str(error)))
            unknown = getattr(error, "outcome_unknown", False) is True
            await self._manifest.move(plan_failed_deletion(guard, outcome_unknown=unknown), None)
            return
        await self._manifest.remove(guard)
        self._deleted[guard.attachment_id] = guard.byte_len
