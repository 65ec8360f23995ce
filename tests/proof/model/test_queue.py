from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st

from lash.model.queue import ClaimCompletion
from lash.model.session.commit import Commit
from tests.proof.model import lease_model
from tests.proof.model.kit import Refused, action, run_machine
from tests.proof.model.lease_rules import recent
from tests.proof.model.queue_rules import QueueRules
from tests.proof.model.world import Side, World

_CLAIMS = ("empty", "not_yet_available", "claimed", "command_at_head", "LeaseLost", "SessionDeleted")


class QueueMachine(QueueRules):
    """The queue, with commits that do nothing but consume it."""

    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *(f"claim:{each}" for each in (*_CLAIMS, "one", "several", "after_turn", "nothing_asked_for")),
            *(f"begin_turn:{each}" for each in ("one", "busy", "empty", "paused", "parked", "command_at_head")),
            *("park:True", "park:False", "park:LeaseLost", "wake:some", "wake:none"),
            *(f"claim_command:{each}" for each in ("one", "empty", "claimed", "turn_work_at_head", "LeaseLost")),
            *(f"claim_batches:{each}" for each in ("one", "not_at_head", "nothing_asked_for", "LeaseLost")),
            *(f"enqueue:known {each}" for each in ("pending", "consumed", "cancelled", "dead")),
            *(f"enqueue:{each}" for each in ("created", "SourceKeyConflict", "SessionDeleted", "SessionNotFound")),
            *(f"renew_claim:{each}" for each in ("ok", "ClaimLost", "SessionDeleted")),
            *(f"abandon:{each}" for each in ("given back", "nothing held")),
            *(f"bury:{each}" for each in ("ok", "ClaimLost")),
            *(f"requeue:{each}" for each in ("ok", "DeadLetterNotFound", "SessionNotFound")),
            *(f"discard:{each}" for each in ("gone", "not there")),
            *(f"cancel:{each}" for each in ("cancelled", "held or gone")),
            *(f"consume:{each}" for each in ("ok", "ClaimLost", "RevisionConflict", "LeaseLost")),
            "prune_source_keys:some",
            "ready_sessions:ok",
            "list_pending:ok",
            "lease.claim:displaced",
            "lease.renew:ok",
            "jump",
            "jump back",
            "other storage",
            "reopen",
        }
    )

    WEIGHTS: ClassVar[dict[str, int]] = {
        "create": 5,
        "enqueue": 13,
        "enqueue_and_claim": 2,
        "claim": 12,
        "claim_lease": 5,
        "begin_turn": 6,
        "renew_lease": 2,
        "release_lease": 1,
        "reclaim_lease": 1,
        "look_at_holder": 0,
        "consume": 8,
        "claim_command": 5,
        "claim_batches": 6,
    }

    @action(6, when=lambda self: self.claims, which=recent, fenced=st.booleans(), stale=st.sampled_from((0, 0, 0, 1)))
    def consume(self, which: int, fenced: bool, stale: int) -> None:  # noqa: FBT001 (drawn by name)
        claim = self.seen_claim(which)
        state = self.sessions.live.get(claim.session_id)
        fence = self.leases[0].fence if fenced and self.leases[0].resource.id == claim.session_id else None
        commit = Commit(
            session_id=claim.session_id,
            expected_revision=(0 if state is None else state.revision) + stale,
            fence=fence,
            completions=(claim.completion,),
        )
        self.step(
            "consume",
            lambda side: _revision(side, commit),
            lambda _: self._consumed(commit, claim.completion),
        )

    def _consumed(self, commit: Commit, completion: ClaimCompletion) -> int:
        state = self.sessions.need(commit.session_id)
        if commit.fence is not None:
            lease_model.live(state, commit.fence, self.now_ms)
        if commit.expected_revision != state.revision:
            raise Refused("RevisionConflict", expected=commit.expected_revision, actual=state.revision)
        self.queues.check_completions(commit.session_id, [completion])
        self.queues.consume(commit.session_id, [completion])
        state.revision += 1
        return state.revision


async def _revision(side: Side, commit: Commit) -> int:
    return (await side.storage.session(commit.session_id).commit(side.own(commit))).revision


def test_queue(world: World) -> None:
    """Work is neither lost nor handed out twice, whatever workers and clocks do."""
    run_machine(QueueMachine, world, examples=45, steps=60)
