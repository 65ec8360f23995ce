"""One sweep of attachments: first the manifest, then the bytes that nobody names any more."""

from __future__ import annotations

from collections import Counter
from typing import Final

from lash.backend.liveness import current_process, is_provably_dead
from lash.base.codec import encode
from lash.base.ids import new_id
from lash.errors import LashError, StoreError, SweepIncomplete
from lash.model.attachment import AttachmentEntry, SweepProblem, SweepReport
from lash.plan.attachment import (
    START,
    AttachmentRow,
    FenceRow,
    Phase,
    Sweeper,
    after,
    decode_entry,
    place_of,
    plan_failed_deletion,
    plan_removal,
    sweeper_of,
)
from lash.stores.attachment import AttachmentManifest, ByteStore, IsOwnerGone

_PAGE: Final = 200
_FENCES: Final = 1_000
"""How many fences one statement looks at: all of them are looked at, but none of the statements takes long."""
_running: Final[set[str]] = set()
"""The sweeps of this process, in any storage. What another one of this process began and did not end was given up."""


class Sweep:
    """What one call of ``sweep`` does and has done so far."""

    def __init__(
        self, manifest: AttachmentManifest, byte_store: ByteStore, is_owner_gone: IsOwnerGone, *, dry_run: bool
    ) -> None:
        self._manifest = manifest
        self._bytes = byte_store
        self._is_owner_gone = is_owner_gone
        self._dry_run = dry_run
        self._sweeper = Sweeper(sweep_id=new_id(), process=current_process())
        self._swept: list[AttachmentEntry] = []
        self._kept: list[AttachmentEntry] = []
        self._refused: list[SweepProblem] = []
        self._failed: list[SweepProblem] = []
        self._deleted: dict[str, int] = {}
        self._stale_files = 0

    async def run(self, older_than_ms: int) -> SweepReport:
        """Sweep once, and return what was done or raise SweepIncomplete with it."""
        _running.add(self._sweeper.sweep_id)
        try:
            await self._sweep_manifest(older_than_ms)
            await self._sweep_bytes()
            if not self._dry_run:
                self._stale_files = await self._bytes.tidy()
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
        # Fixed at the start: what is put again meanwhile must not come up for ever.
        newest_ms = await self._manifest.now_ms() - older_than_ms
        place = START
        while rows := await self._manifest.uncommitted(newest_ms, place, _PAGE):
            for row in rows:
                await self._sweep_row(row)
            place = place_of(rows[-1])

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
        """Return whether nobody can commit the attachment any more; None, noted as refused, if that is not known."""
        owner = "everybody" if entry.owner is None else f"{entry.owner.kind} {entry.owner.id!r}"
        try:
            answer: object = await self._is_owner_gone(entry)
        except Exception as error:  # noqa: BLE001 (the host's own code: whatever goes wrong there proves nothing)
            reason = f"whether {owner} who may commit it is gone could not be told: {error!r}"
        else:
            if isinstance(answer, bool):
                return answer
            reason = f"whether {owner} who may commit it is gone was answered by {answer!r:.80}"
        self._refused.append(SweepProblem(attachment_id=entry.ref.id, session_id=entry.session_id, reason=reason))
        return None

    async def _sweep_bytes(self) -> None:
        if self._dry_run:
            await self._foresee_bytes()
        page = await self._manifest.unnamed("", _FENCES)
        while page.last_id is not None:
            for fence in page.fences:
                if self._dry_run:
                    self._deleted[fence.attachment_id] = fence.byte_len
                else:
                    await self._remove(fence, page.now_ms)
            page = await self._manifest.unnamed(page.last_id, _FENCES)

    async def _foresee_bytes(self) -> None:
        """Note the bytes of which a sweep would take the last name."""
        swept = Counter(entry.ref.id for entry in self._swept)
        names = await self._manifest.names(sorted(swept))
        for entry in self._swept:
            if names.get(entry.ref.id) == swept[entry.ref.id]:
                self._deleted[entry.ref.id] = entry.ref.byte_len

    async def _remove(self, fence: FenceRow, now_ms: int) -> None:
        """Take the fence through its phases as long as nobody else moves it, and delete the bytes at the end."""
        is_dead = self._is_dead(sweeper_of(fence))
        while (move := plan_removal(fence, sweeper_is_dead=is_dead, now_ms=now_ms)) is not None:
            holder = encode(self._sweeper, Sweeper, "sweeper") if move.to is Phase.DELETING else None
            if not await self._manifest.move(move, holder):
                return
            fence = after(move, fence, holder)
            if fence.phase is Phase.DELETING:
                await self._delete(fence)
                return

    def _is_dead(self, other: Sweeper | None) -> bool:
        """Say whether another sweep has provably ended."""
        own = self._sweeper.process
        if other is None or other.process is None or own is None:
            return False
        return is_provably_dead(other.process, own) or (other.process == own and other.sweep_id not in _running)

    async def _delete(self, fence: FenceRow) -> None:
        try:
            await self._bytes.delete(fence.attachment_id)
        except LashError as error:
            self._failed.append(SweepProblem(attachment_id=fence.attachment_id, reason=str(error)))
            unknown = getattr(error, "outcome_unknown", False) is True
            await self._manifest.move(plan_failed_deletion(fence, outcome_unknown=unknown), None)
            return
        await self._manifest.remove(fence)
        self._deleted[fence.attachment_id] = fence.byte_len
