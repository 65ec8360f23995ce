from __future__ import annotations

from typing import ClassVar

from lash.model.queue import ClaimCompletion
from lash.model.session.commit import Commit
from tests.proof.model.artifact_rules import ArtifactRules
from tests.proof.model.attachment_rules import AttachmentRules
from tests.proof.model.kit import run_machine
from tests.proof.model.wake_rules import WakeRules
from tests.proof.model.world import World


class StorageMachine(WakeRules, AttachmentRules, ArtifactRules):
    """All nouns on the same sessions: operations on one must not disturb another."""

    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *(f"commit:{each}" for each in ("ok", "RevisionConflict", "LeaseLost", "ClaimLost", "SessionDeleted")),
            *("commit:consumed", "repeat:ok", "repeat:TurnConflict", "fork:new", "vacuum:ok", "audit:ok"),
            *(f"append_news:{each}" for each in ("queued", "undeliverable", "no_target", "replayed", "EventConflict")),
            *("enqueue:created", "claim:one", "bury:ok", "requeue:ok", "cancel:cancelled", "wakes:ok"),
            *("put:ok", "sweep:deleted", "collect_garbage:none", "create:again", "delete:ok"),
            *("jump", "jump back", "other storage", "reopen"),
        }
    )
    LEFT_OUT: ClassVar[frozenset[tuple[str, str]]] = frozenset(
        # One has the ids of consumed batches, the other those of wakes.
        {("lash_turns", "commit_hash"), ("lash_source_keys", "content_hash")}
    )
    WEIGHTS: ClassVar[dict[str, int]] = {
        "commit": 12,
        "enqueue": 8,
        "claim": 12,
        "claim_lease": 6,
        "begin_turn": 2,
        "bury": 3,
        "append_news": 8,
        "put": 3,
        "get": 1,
        **dict.fromkeys(("claim_command", "claim_batches", "reclaim_lease", "release_lease", "sweep"), 1),
        "requeue": 2,
        **dict.fromkeys(("put_artifact", "get_artifact", "delete_artifact", "put_environment"), 1),
        **dict.fromkeys(("append_nodes", "repeat_append", "create_with"), 1),
        # The end of a process is a reason too, which only the model of processes knows.
        **dict.fromkeys(("park", "wake"), 0),
        **dict.fromkeys(("look_at_holder", "read_blob", "read_node", "list_artifacts"), 0),
    }

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.histories.check_claims = lambda commit: self.queues.check_completions(
            commit.session_id, commit.completions
        )

    def completions_for(self, session_id: str, place: int) -> tuple[ClaimCompletion, ...]:
        claims = [claim for claim in self.claims[:4] if claim.session_id == session_id]
        return (claims[0].completion,) if claims and place % 3 else ()

    def settle(self, commit: Commit) -> None:
        super().settle(commit)
        self.queues.consume(commit.session_id, commit.completions)
        if commit.completions:
            self.count("commit:consumed")


def test_storage(world: World) -> None:
    """All nouns on one storage, with forks, deletions, sweeps, reopening and clocks that jump."""
    run_machine(StorageMachine, world, examples=27, steps=60)
