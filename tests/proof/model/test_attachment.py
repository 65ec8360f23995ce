from __future__ import annotations

from typing import ClassVar

from tests.proof.model.artifact_rules import ArtifactRules
from tests.proof.model.attachment_rules import AttachmentRules
from tests.proof.model.kit import run_machine
from tests.proof.model.world import World


class AttachmentMachine(AttachmentRules, ArtifactRules):
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *(f"put:{each}" for each in ("ok", "SessionDeleted", "SessionNotFound")),
            *(f"get:{each}" for each in ("ok", "AttachmentNotFound", "SessionDeleted")),
            *("stamp:ok", "list_uncommitted:ok", "attachments:ok"),
            *(f"commit attachments:{each}" for each in ("ok", "AttachmentNotFound", "SessionDeleted")),
            *(f"forget:{each}" for each in ("gone", "not there")),
            *(f"sweep:{each}" for each in ("swept", "kept", "refused", "deleted")),
            *("fork:new", "delete:ok", "create:again", "jump", "other storage", "reopen"),
            *(f"artifact.get:{each}" for each in ("ok", "ArtifactNotFound")),
            *(f"artifact.delete:{each}" for each in ("gone", "not there")),
            *(f"collect_garbage:{each}" for each in ("some", "none")),
            *("artifact.put:ok", "artifact.list:ok", "environment.put:ok"),
        }
    )
    WEIGHTS: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("append_nodes", "repeat_append", "create_with"), 1),
        "commit": 2,
        "fork": 5,
        "create": 4,
        "use_other_storage": 6,
        "put_artifact": 6,
        "get_artifact": 9,
        "delete_artifact": 3,
        **dict.fromkeys(("repeat_commit", "tombstone", "vacuum", "read_path", "read_node", "read_blob"), 0),
        **dict.fromkeys(("audit", "list_sessions", "look_at_holder"), 0),
        **dict.fromkeys(("claim_lease", "reclaim_lease", "renew_lease", "release_lease"), 0),
    }


def test_attachment(world: World) -> None:
    """Needed bytes are never lost, and unneeded bytes are not kept."""
    run_machine(AttachmentMachine, world, examples=27, steps=40)
