"""Artifacts: code and the environments that it runs in, stored under the hash of their content."""

from __future__ import annotations

from typing import NewType

import msgspec

from lash.model.value import ClosedValue, Count, JSONObject, Value

ArtifactRef = NewType("ArtifactRef", str)
"""The lowercase hex SHA-256 of an artifact's bytes."""


class ProcessEnvironment(ClosedValue, frozen=True, kw_only=True):
    """What a process is run with. Equal environments have the same ref, whatever the order of their keys."""

    body: JSONObject = msgspec.field(default_factory=dict)


class ArtifactSummary(Value, frozen=True, kw_only=True):
    """One stored artifact without its bytes. ``size`` is their length before compression."""

    ref: ArtifactRef
    size: Count
    created_at_ms: int


class ArtifactPage(Value, frozen=True, kw_only=True):
    """Some artifacts of a namespace, by ref, and the cursor with which to ask for the next ones."""

    artifacts: tuple[ArtifactSummary, ...]
    next_cursor: str | None = None
