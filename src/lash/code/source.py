"""Where the source of a process is stored, for pages and commands that show it."""

from __future__ import annotations

from typing import Final

from lash.errors import ArtifactNotFound
from lash.model.artifact import ArtifactRef
from lash.model.process.process import EngineInput, ProcessRecord
from lash.stores.storage import Storage

ENGINE: Final = "code"
"""The name of the engine of sandboxed Python."""
NAMESPACE: Final = "code"
"""The namespace of the artifacts that are sources of programs."""


def source_ref(record: ProcessRecord) -> ArtifactRef | None:
    """Return the artifact that has the source of a process, or None."""
    given = record.registration.input
    if not isinstance(given, EngineInput) or given.kind != ENGINE or not isinstance(given.payload, dict):
        return None
    arguments = given.payload.get("args")
    ref = arguments.get("artifact") if isinstance(arguments, dict) else None
    return ArtifactRef(ref) if isinstance(ref, str) else None


async def read_source(storage: Storage, record: ProcessRecord) -> str | None:
    """Return the source of a process; None if it has none, or if the artifact was deleted."""
    ref = source_ref(record)
    if ref is None:
        return None
    try:
        return (await storage.artifacts.get(NAMESPACE, ref)).decode("utf-8", "replace")
    except ArtifactNotFound:
        return None
