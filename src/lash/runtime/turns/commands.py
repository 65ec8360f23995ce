"""Commands at the head of a session's queue: consumed before the input behind them becomes a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lash.errors import ClaimLost, LeaseLost, RevisionConflict, SessionDeleted, SessionNotFound
from lash.model.lease import Lease
from lash.model.queue import Claim, ClaimedTurn, SessionCommand
from lash.runtime.turns.draft import consume_command
from lash.runtime.turns.inbox import Inbox, command_of, is_cancellation

if TYPE_CHECKING:
    from lash.runtime.core import Core


async def claim_behind_commands(core: Core, lease: Lease) -> ClaimedTurn | None:
    """Consume the commands at the head of a session's queue and claim the input behind them, under its lease.

    The commands came for turns that are over, so they have no effect. Without input, or if the session is lost to
    another worker or deleted, the lease is released and None returned.
    """
    session_id, fence = lease.resource.id, lease.fence
    inbox = Inbox(core.storage, fence, core.hold_session(fence), ttl_ms=core.options.ttl_ms)
    try:
        while (claim := await inbox.next()) is not None:
            command = command_of(claim.batches[0])
            if command is None:
                head = await core.histories.load(core.storage, session_id)
                return ClaimedTurn(
                    lease=lease, claim=claim, revision=head.revision, leaf_node_id=head.leaf_node_id, recorded=True
                )
            await _consume(core, lease, claim, command)
    except (LeaseLost, ClaimLost):
        core.hooks.note("lease.lost", session_id=session_id, turn_id="")
    except (SessionDeleted, SessionNotFound):
        return None
    await core.storage.leases.release(lease.fence)
    return None


async def _consume(core: Core, lease: Lease, claim: Claim, command: SessionCommand) -> None:
    """Commit that a command is done; if another writer was faster, leave it for the next try."""
    session_id = lease.resource.id
    if not is_cancellation(command):
        core.hooks.note("command.unknown", session_id=session_id, command=command.command)
    history = await core.histories.load(core.storage, session_id)
    commit = consume_command(history, lease.fence, claim.batches[0].batch_id, claim.completion)
    try:
        result = await core.storage.session(session_id).commit(commit)
    except RevisionConflict:
        await core.storage.queue.abandon(claim, count_attempt=False)
        return
    core.histories.advance(session_id, commit, result)
