"""The rows of effects and groups, and the facts of a decision about an effect."""

from __future__ import annotations

from typing import Annotated

import msgspec

from lash.model.effect import (
    EffectStatus,
)
from lash.plan.lease import LeaseRow
from lash.plan.sealed import ENVELOPE, OUTCOME


class EffectRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored effect. The last runner is kept after the effect has finished."""

    replay_key: str
    envelope: Annotated[str, ENVELOPE]
    envelope_hash: str
    status: EffectStatus
    outcome: Annotated[str | None, OUTCOME]
    error: Annotated[str | None, OUTCOME]
    once: bool
    owner_id: str | None
    incarnation_id: str | None
    process: str | None
    token: str | None
    fencing: int
    expires_at_ms: int | None
    due_at_ms: int | None
    settled_rank: int | None
    created_at_ms: int
    updated_at_ms: int
    began_at_ms: int | None = None
    attempt: int | None = None
    tries: int | None = None
    worker: str | None = None
    traceparent: str | None = None


class NumberedEffect(EffectRow, frozen=True, array_like=True):
    """One of several effects that were asked for, and its place among them."""

    place: int = 0


class ClaimRow(msgspec.Struct, frozen=True, array_like=True):
    """A claim that was just written."""

    fencing: int
    expires_at_ms: int
    due_at_ms: int | None


class RecordedRow(msgspec.Struct, frozen=True, array_like=True):
    """An effect that was just recorded: when, until when it sleeps, and its rank in its group."""

    now_ms: int
    due_at_ms: int | None
    settled_rank: int | None


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored group: the number of effects it was opened for, and how many have begun and finished."""

    size: int
    members: int
    settled: int


class GroupState(msgspec.Struct, frozen=True, array_like=True):
    """A stored group, and the keys of its finished effects by rank."""

    group: GroupRow
    finished: list[str]


class EffectFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an effect, from one moment.

    ``lease`` is that of its session or process. A backend leaves out the lease and the group where no decision needs
    them.
    """

    now_ms: int
    lease: LeaseRow | None
    group: GroupRow | None
    row: EffectRow | None
