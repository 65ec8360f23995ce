"""The contract of artifacts."""

from __future__ import annotations

from typing import Protocol

from lash.model.artifact import ArtifactPage, ArtifactRef, ProcessEnvironment


class ArtifactStore(Protocol):
    """Immutable bytes by namespace and content hash, verified whenever they are loaded.

    A storage keeps a bounded number of the last ones in memory. What another storage deletes may therefore still be
    read here for a while; it can never be read wrong.
    """

    async def put(self, namespace: str, content: bytes) -> ArtifactRef:
        """Keep the bytes and return their ref. Bytes that are there already stay as they are."""
        ...

    async def get(self, namespace: str, ref: ArtifactRef) -> bytes:
        """Return the bytes, or raise ArtifactNotFound.

        The ref asked for, the stored ref and the hash of the bytes must agree; otherwise this raises CorruptData.
        """
        ...

    async def exists(self, namespace: str, ref: ArtifactRef) -> bool:
        """Say whether the database holds the artifact, without loading it."""
        ...

    async def put_environment(self, environment: ProcessEnvironment) -> ArtifactRef:
        """Keep the environment of a process and return its ref. Equal environments have the same ref."""
        ...

    async def get_environment(self, ref: ArtifactRef) -> ProcessEnvironment:
        """Return an environment, or raise ArtifactNotFound; CorruptData if the bytes are none."""
        ...

    async def list(self, namespace: str, *, limit: int = 100, cursor: str | None = None) -> ArtifactPage:
        """Return artifacts of the namespace in the order of their refs. Pages do not overlap."""
        ...

    async def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces that hold an artifact, in the order of their names."""
        ...

    async def delete(self, namespace: str, ref: ArtifactRef) -> bool:
        """Remove an artifact that nothing refers to any more, and return whether it was there."""
        ...
