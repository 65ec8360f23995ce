"""The contract of artifacts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from lash.model.artifact import ArtifactPage, ArtifactRef, ProcessEnvironment

if TYPE_CHECKING:
    from lash.base.compression import StoredBlob
    from lash.plan.artifact import ArtifactRow, ArtifactSummaryRow


class ArtifactStore(Protocol):
    """Immutable bytes by namespace and content hash, verified on every load.

    A storage caches a bounded number of recently loaded artifacts. It may therefore still return an artifact that
    another storage has deleted, but never wrong bytes.
    """

    async def put(self, namespace: str, content: bytes) -> ArtifactRef:
        """Store the bytes and return their ref. Idempotent: existing bytes and their creation time stay."""
        ...

    async def get(self, namespace: str, ref: ArtifactRef) -> bytes:
        """Return the bytes, or raise ArtifactNotFound.

        Raises CorruptData unless the requested ref, the stored ref and the hash of the bytes agree.
        """
        ...

    async def exists(self, namespace: str, ref: ArtifactRef) -> bool:
        """Return whether the database holds the artifact, without loading it."""
        ...

    async def put_environment(self, environment: ProcessEnvironment) -> ArtifactRef:
        """Store the environment of a process and return its ref. Equal environments have the same ref."""
        ...

    async def get_environment(self, ref: ArtifactRef) -> ProcessEnvironment:
        """Return an environment, or raise ArtifactNotFound; CorruptData if the bytes are not an environment."""
        ...

    async def list(self, namespace: str, *, limit: int = 100, cursor: str | None = None) -> ArtifactPage:
        """Return a page of the namespace's artifacts, ordered by ref. Pages do not overlap."""
        ...

    async def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces that hold an artifact, sorted."""
        ...

    async def delete(self, namespace: str, ref: ArtifactRef) -> bool:
        """Remove an artifact and return whether it existed. The caller ensures that nothing refers to it."""
        ...


class ArtifactRows(Protocol):
    """The rows of artifacts in one database; `lash.backend.artifact.Artifacts` makes an `ArtifactStore` of them."""

    async def put(self, namespace: str, blob: StoredBlob) -> None:
        """Write the artifact, or only the time of this put if it exists."""
        ...

    async def load(self, namespace: str, ref: ArtifactRef, unpack: Callable[[ArtifactRow], bytes]) -> bytes | None:
        """Return the unpacked bytes, or None. SQLite unpacks in the thread that reads."""
        ...

    async def exists(self, namespace: str, ref: ArtifactRef) -> bool: ...

    async def page(self, namespace: str, after: str, limit: int) -> list[ArtifactSummaryRow]:
        """Return at most ``limit`` artifacts whose ref is greater than ``after``, ordered by ref."""
        ...

    async def namespaces(self) -> list[str]:
        """Return the namespaces that hold an artifact, in any order."""
        ...

    async def delete(self, namespace: str, ref: ArtifactRef) -> bool: ...
