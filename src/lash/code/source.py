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
_LASHLANG: Final = "lashlang"
"""The engine whose artifacts are linked modules; their source is printed from them."""


def source_ref(record: ProcessRecord) -> ArtifactRef | None:
    """Return the artifact that has the source of a process, or None."""
    given = record.registration.input
    if not isinstance(given, EngineInput) or not isinstance(given.payload, dict):
        return None
    if given.kind == _LASHLANG:
        ref = given.payload.get("module_ref")
    else:
        arguments = given.payload.get("args")
        ref = arguments.get("artifact") if given.kind == ENGINE and isinstance(arguments, dict) else None
    return ArtifactRef(ref) if isinstance(ref, str) else None


async def read_source(storage: Storage, record: ProcessRecord) -> str | None:
    """Return the source of a process; None if it has none, or if the artifact was deleted.

    That of a lashlang process is its whole module in the canonical layout, without comments.
    """
    ref = source_ref(record)
    if ref is None:
        return None
    try:
        if ref.startswith(f"{_LASHLANG}:"):
            from lash.lang.module.refs import ModuleRef
            from lash.lang.module.store import ModuleStore
            from lash.lang.printing.program import module_text

            return module_text(await ModuleStore(storage.artifacts).get(ModuleRef(ref)))
        return (await storage.artifacts.get(NAMESPACE, ref)).decode("utf-8", "replace")
    except ArtifactNotFound:
        return None
