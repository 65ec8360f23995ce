"""Artifacts: code and process environments, stored under the hash of their content."""

from __future__ import annotations

from typing import NewType

import msgspec

from lash.model.value import ClosedValue, Count, JSONObject, Value

ArtifactRef = NewType("ArtifactRef", str)
"""The lowercase hex SHA-256 of an artifact's bytes."""


class ProcessEnvironment(ClosedValue, frozen=True, kw_only=True):
    """The environment of a process. Equal environments have the same ref; the order of keys does not matter."""

    body: JSONObject = msgspec.field(default_factory=dict)


class ArtifactSummary(Value, frozen=True, kw_only=True):
    """One stored artifact without its bytes. ``size`` is their length before compression."""

    ref: ArtifactRef
    size: Count
    created_at_ms: int


class ArtifactPage(Value, frozen=True, kw_only=True):
    """One page of a namespace's artifacts, ordered by ref; ``next_cursor`` asks for the next page."""

    artifacts: tuple[ArtifactSummary, ...]
    next_cursor: str | None = None
