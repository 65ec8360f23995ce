"""The input of one run of a turn: what it takes first, what joins it, and the same again in later attempts."""

from __future__ import annotations

from typing import Final

from lash.model.effect import CheckpointPoint, TurnCheckpoint
from lash.model.queue import Claim
from lash.model.session.message import Message
from lash.model.value import JSON
from lash.runtime.outage import HeldLease
from lash.runtime.steps.journal import Journal
from lash.runtime.turns.branches import BranchPoint
from lash.runtime.turns.draft import TurnDraft
from lash.runtime.turns.inbox import Inbox, input_messages, may_merge

_INPUT_KEY: Final = "input"
_TAKEN: Final = TurnCheckpoint(checkpoint=CheckpointPoint.AFTER_WORK)


class TakenInput:
    """Adds claimed input to the draft of a turn, and records which, so that every attempt has the same."""

    def __init__(self, session_id: str, inbox: Inbox, lease: HeldLease, journal: Journal, draft: TurnDraft) -> None:
        self._session_id = session_id
        self._inbox = inbox
        self._lease = lease
        self._journal = journal
        self._draft = draft

    async def take_first(self, claim: Claim, branch: BranchPoint | None) -> None:
        """Add the claimed input to the turn; after an earlier attempt exactly what that one had."""
        claims, self._inbox.claims = self._inbox.claims, []
        known = None
        if may_merge(claim.batches[0]):
            known = self._journal.peek(_INPUT_KEY, _TAKEN)
            if known is None:
                await self._record(_INPUT_KEY, claims)
        if known is None:
            self._take(claims, publish=branch is None or branch.publishes_input)
        else:
            wanted = _batch_ids(known.outcome)
            narrowed = [each for claim in claims for each in await self._inbox.narrow(claim, wanted)]
            await self._take_again(wanted, narrowed)

    async def take_early(self, key: str) -> list[Message]:
        """Claim early input and record which, so that a later attempt takes the same at the same place."""
        known = self._journal.peek(key, _TAKEN)
        if known is not None:
            wanted = _batch_ids(known.outcome)
            return await self._take_again(wanted, await self._inbox.early_again(wanted))
        claimed = await self._inbox.early()
        await self._record(key, claimed)
        return self._take(claimed)

    async def _record(self, key: str, claimed: list[Claim]) -> None:
        async def outcome() -> JSON:
            return {"batch_ids": [batch.batch_id for claim in claimed for batch in claim.batches]}

        await self._journal.recorded(key, _TAKEN, outcome)

    def _take(self, claimed: list[Claim], *, publish: bool = True) -> list[Message]:
        self._inbox.claims.extend(claimed)
        new = [message for claim in claimed for batch in claim.batches for message in input_messages(batch)]
        self._draft.take(new, publish=publish)
        return new

    async def _take_again(self, wanted: list[str], claimed: list[Claim]) -> list[Message]:
        """Add what an earlier attempt had, in its order; batches that left the queue since are shown, not published."""
        self._inbox.claims.extend(claimed)
        batches = {batch.batch_id: batch for claim in claimed for batch in claim.batches}
        new: list[Message] = []
        for batch_id in wanted:
            here = batches.get(batch_id)
            if here is not None:
                messages = input_messages(here)
            else:
                seen_before = self._inbox.seen_before
                messages = await self._lease.bridge("reading earlier input", seen_before, self._session_id, batch_id)
            self._draft.take(messages, publish=here is not None)
            new.extend(messages)
        return new


def _batch_ids(outcome: JSON) -> list[str]:
    ids = outcome.get("batch_ids") if isinstance(outcome, dict) else None
    return [str(each) for each in ids] if isinstance(ids, list) else []
