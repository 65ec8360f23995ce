"""The artifact store on every backend."""

from __future__ import annotations

from functools import partial

from lash.base.cache import ByteCache
from lash.base.compression import Compression
from lash.base.limits import check_identifier, check_limit
from lash.errors import ArtifactNotFound
from lash.model.artifact import ArtifactPage, ArtifactRef, ProcessEnvironment
from lash.plan.artifact import (
    ENVIRONMENTS,
    check_artifact_cursor,
    check_artifact_ref,
    decode_artifact_page,
    decode_value,
    encode_value,
    pack_artifact,
    unpack_artifact,
)
from lash.stores.artifact import ArtifactRows


class Artifacts:
    """The artifacts of one storage; the contract is `lash.stores.artifact.ArtifactStore`."""

    def __init__(self, rows: ArtifactRows, compression: Compression) -> None:
        self._rows = rows
        self._compression = compression
        self._cache = ByteCache()

    async def put(self, namespace: str, content: bytes) -> ArtifactRef:
        check_identifier("namespace", namespace)
        blob = pack_artifact(content, self._compression)
        await self._rows.put(namespace, blob)
        return ArtifactRef(blob.ref)

    async def get(self, namespace: str, ref: ArtifactRef) -> bytes:
        check_identifier("namespace", namespace)
        check_artifact_ref(ref)
        content = self._cache.get((namespace, ref))
        if content is None:
            content = await self._rows.load(namespace, ref, partial(unpack_artifact, ref=ref))
            if content is None:
                raise ArtifactNotFound(namespace, ref)
            self._cache.remember((namespace, ref), content)
        return content

    async def exists(self, namespace: str, ref: ArtifactRef) -> bool:
        check_identifier("namespace", namespace)
        return await self._rows.exists(namespace, check_artifact_ref(ref))

    async def put_environment(self, environment: ProcessEnvironment) -> ArtifactRef:
        return await self.put(ENVIRONMENTS, encode_value(environment, ProcessEnvironment))

    async def get_environment(self, ref: ArtifactRef) -> ProcessEnvironment:
        return decode_value(await self.get(ENVIRONMENTS, ref), ProcessEnvironment, ref)

    async def list(self, namespace: str, *, limit: int = 100, cursor: str | None = None) -> ArtifactPage:
        check_identifier("namespace", namespace)
        size, after = check_limit(limit), check_artifact_cursor(cursor)
        return decode_artifact_page(await self._rows.page(namespace, after, size + 1), size)

    async def namespaces(self) -> tuple[str, ...]:
        # Sorted here: the databases collate names differently.
        return tuple(sorted(await self._rows.namespaces()))

    async def delete(self, namespace: str, ref: ArtifactRef) -> bool:
        check_identifier("namespace", namespace)
        check_artifact_ref(ref)
        self._cache.forget((namespace, ref))
        return await self._rows.delete(namespace, ref)
