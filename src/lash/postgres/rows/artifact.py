"""Artifacts on PostgreSQL."""

from __future__ import annotations

from lash.base.cache import ByteCache
from lash.base.compression import Compression
from lash.base.limits import check_identifier
from lash.errors import ArtifactNotFound
from lash.model.artifact import ArtifactPage, ArtifactRef, ProcessEnvironment
from lash.plan.artifact import (
    ENVIRONMENTS,
    ArtifactRow,
    ArtifactSummaryRow,
    check_artifact_cursor,
    check_artifact_ref,
    decode_artifact_page,
    decode_value,
    encode_value,
    pack_artifact,
    unpack_artifact,
)
from lash.plan.session.session import check_limit
from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Flag, Text


class PostgresArtifactStore:
    """The artifacts of one PostgreSQL storage; the contract is `lash.stores.artifact.ArtifactStore`."""

    def __init__(self, database: Database, compression: Compression) -> None:
        self._database = database
        self._compression = compression
        self._cache = ByteCache()

    async def put(self, namespace: str, content: bytes) -> ArtifactRef:
        check_identifier("namespace", namespace)
        blob = pack_artifact(content, self._compression)
        arguments = (namespace, blob.ref, blob.codec.value, blob.size, blob.content)
        await self._database.write_one(Flag, "artifact_put", *arguments, repeatable=True)
        return ArtifactRef(blob.ref)

    async def get(self, namespace: str, ref: ArtifactRef) -> bytes:
        check_identifier("namespace", namespace)
        check_artifact_ref(ref)
        known = self._cache.get((namespace, ref))
        if known is not None:
            return known
        row = await self._database.read_one(ArtifactRow, "artifact_get", namespace, ref)
        if row is None:
            raise ArtifactNotFound(namespace, ref)
        content = unpack_artifact(row, ref)
        self._cache.remember((namespace, ref), content)
        return content

    async def exists(self, namespace: str, ref: ArtifactRef) -> bool:
        check_identifier("namespace", namespace)
        check_artifact_ref(ref)
        found = await self._database.read_one(Flag, "artifact_exists", namespace, ref)
        return found is not None and found.value

    async def put_environment(self, environment: ProcessEnvironment) -> ArtifactRef:
        return await self.put(ENVIRONMENTS, encode_value(environment, ProcessEnvironment))

    async def get_environment(self, ref: ArtifactRef) -> ProcessEnvironment:
        return decode_value(await self.get(ENVIRONMENTS, ref), ProcessEnvironment, ref)

    async def list(self, namespace: str, *, limit: int = 100, cursor: str | None = None) -> ArtifactPage:
        check_identifier("namespace", namespace)
        size, after = check_limit(limit), check_artifact_cursor(cursor)
        rows = await self._database.read_all(ArtifactSummaryRow, "artifact_page", namespace, after, size + 1)
        return decode_artifact_page(rows, size)

    async def namespaces(self) -> tuple[str, ...]:
        rows = await self._database.read_all(Text, "artifact_namespaces")
        return tuple(sorted(row.text for row in rows))

    async def delete(self, namespace: str, ref: ArtifactRef) -> bool:
        check_identifier("namespace", namespace)
        check_artifact_ref(ref)
        self._cache.forget((namespace, ref))
        return await self._database.write_one(Flag, "artifact_delete", namespace, ref, repeatable=True) is not None
