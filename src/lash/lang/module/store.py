"""Modules in a storage: an artifact is found by the ref of its module."""

from __future__ import annotations

from lash.errors import ArtifactNotFound, CorruptData
from lash.lang.module.artifact import ModuleArtifact, decode_artifact, encode_artifact
from lash.lang.module.refs import ModuleRef
from lash.model.artifact import ArtifactRef
from lash.stores.artifact import ArtifactStore


class ModuleStore:
    """The modules of a storage. Each module has a namespace of its own, named by its ref.

    Puts of modules that differ in names of local variables store one artifact each, all with the same meaning.
    """

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts

    async def put(self, artifact: ModuleArtifact) -> ArtifactRef:
        """Verify and store an artifact, and return the hash of its bytes. Idempotent."""
        return await self._artifacts.put(artifact.module_ref, encode_artifact(artifact))

    async def get(self, ref: ModuleRef) -> ModuleArtifact:
        """Return a verified artifact with this ref, the same one on every call that finds the same artifacts.

        Raises ArtifactNotFound if there is none, and CorruptData if its bytes are damaged or of another module.
        """
        page = await self._artifacts.list(ref, limit=1)
        if not page.artifacts:
            raise ArtifactNotFound(ref, ref)
        artifact = decode_artifact(await self._artifacts.get(ref, page.artifacts[0].ref))
        if artifact.module_ref != ref:
            raise CorruptData(f"expected module {ref}, found {artifact.module_ref}")
        return artifact

    async def exists(self, ref: ModuleRef) -> bool:
        """Return whether the storage has an artifact of this module."""
        return bool((await self._artifacts.list(ref, limit=1)).artifacts)
