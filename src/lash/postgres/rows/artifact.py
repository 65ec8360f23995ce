"""The rows of artifacts on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

from lash.base.compression import StoredBlob
from lash.model.artifact import ArtifactRef
from lash.plan.artifact import ArtifactRow, ArtifactSummaryRow
from lash.plan.sealed import CONTENT
from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Flag, Text


class PostgresArtifactRows:
    """The artifacts of one PostgreSQL storage; the contract is `lash.stores.artifact.ArtifactRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, namespace: str, blob: StoredBlob) -> None:
        content = self._database.seals.content(CONTENT, blob.content, blob.ref)
        arguments = (namespace, blob.ref, blob.codec.value, blob.size, content)
        await self._database.write_one(Flag, "artifact_put", *arguments, repeatable=True)

    async def load(self, namespace: str, ref: ArtifactRef, unpack: Callable[[ArtifactRow], bytes]) -> bytes | None:
        row = await self._database.read_one(ArtifactRow, "artifact_get", namespace, ref)
        return None if row is None else unpack(row)

    async def exists(self, namespace: str, ref: ArtifactRef) -> bool:
        found = await self._database.read_one(Flag, "artifact_exists", namespace, ref)
        return found is not None and found.value

    async def page(self, namespace: str, after: str, limit: int) -> list[ArtifactSummaryRow]:
        return await self._database.read_all(ArtifactSummaryRow, "artifact_page", namespace, after, limit)

    async def namespaces(self) -> list[str]:
        return [row.text for row in await self._database.read_all(Text, "artifact_namespaces")]

    async def delete(self, namespace: str, ref: ArtifactRef) -> bool:
        return await self._database.write_one(Flag, "artifact_delete", namespace, ref, repeatable=True) is not None
