"""Checkpoints: the state that is saved with a head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from lash.base.compression import BlobRef
from lash.model.session.usage import PromptUsage, TokenUsage
from lash.model.value import Count, JSONObject, Value, share_default

TOOL_STATE: Final = "tool_state"
PLUGIN_SNAPSHOT: Final = "plugin_snapshot"
EXECUTION_STATE: Final = "execution_state"

AGENT_OPTION: Final = "agent"
"""The turn option that names the agent, in messages and in saved state."""
BRANCH_OPTION: Final = "branch"
"""The turn option of a message that starts a branch."""

_NO_TOKENS: Final = TokenUsage()

FRAME_PREFIX: Final = "frame:"
"""Component keys with this prefix are the execution states of agent frames; other components must not use it."""


class TurnState(Value, frozen=True, kw_only=True):
    """The small state that every turn changes."""

    turn_index: Count = 0
    token_usage: TokenUsage = _NO_TOKENS
    last_prompt_usage: PromptUsage | None = None
    protocol_turn_options: JSONObject = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.token_usage is not _NO_TOKENS:
            share_default(self, "token_usage", _NO_TOKENS)


_FIRST_TURN: Final = TurnState()


class CheckpointDraft(Value, frozen=True, kw_only=True):
    """The state to save with a commit.

    A component given as bytes is stored; given as the ref of bytes this session already holds, it is kept;
    left out, it is removed.
    """

    turn_state: TurnState = _FIRST_TURN
    plugin_snapshot_revision: Count | None = None
    components: Mapping[str, bytes | BlobRef] = msgspec.field(default_factory=dict)


class CheckpointManifest(Value, frozen=True, kw_only=True):
    """A checkpoint without its bytes: every component by its ref."""

    turn_state: TurnState = _FIRST_TURN
    plugin_snapshot_revision: Count | None = None
    components: dict[str, BlobRef] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.turn_state is not _FIRST_TURN:
            share_default(self, "turn_state", _FIRST_TURN)


class Checkpoint(Value, frozen=True, kw_only=True):
    """A checkpoint with the bytes of every component."""

    ref: BlobRef
    revision: Count
    manifest: CheckpointManifest
    components: dict[str, bytes] = msgspec.field(default_factory=dict)
