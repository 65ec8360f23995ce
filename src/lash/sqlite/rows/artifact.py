"""The rows of artifacts on SQLite."""

from __future__ import annotations

from collections.abc import Callable

from lash.base.compression import StoredBlob
from lash.model.artifact import ArtifactRef
from lash.plan.artifact import ArtifactRow, ArtifactSummaryRow
from lash.plan.sealed import CONTENT
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlkit.rows import Flag, Text


class SQLiteArtifactRows:
    """The artifacts of one SQLite storage; the contract is `lash.stores.artifact.ArtifactRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, namespace: str, blob: StoredBlob) -> None:
        def body(transaction: Transaction) -> None:
            transaction.run(
                "artifact_put",
                namespace=namespace,
                ref=blob.ref,
                codec=blob.codec.value,
                size=blob.size,
                content=transaction.seals.content(CONTENT, blob.content, blob.ref),
                now_ms=transaction.now_ms,
            )

        await self._database.write(body)

    async def load(self, namespace: str, ref: ArtifactRef, unpack: Callable[[ArtifactRow], bytes]) -> bytes | None:
        def body(reader: Reader) -> bytes | None:
            row = reader.one(ArtifactRow, "artifact_get", namespace=namespace, ref=ref)
            return None if row is None else unpack(row)

        return await self._database.read_in_thread(body)

    async def exists(self, namespace: str, ref: ArtifactRef) -> bool:
        found = self._database.read(lambda reader: reader.one(Flag, "artifact_exists", namespace=namespace, ref=ref))
        return found is not None and found.value

    async def page(self, namespace: str, after: str, limit: int) -> list[ArtifactSummaryRow]:
        return await self._database.read_in_thread(
            lambda reader: reader.all(
                ArtifactSummaryRow, "artifact_page", namespace=namespace, after=after, limit=limit
            )
        )

    async def namespaces(self) -> list[str]:
        rows = await self._database.read_in_thread(lambda reader: reader.all(Text, "artifact_namespaces"))
        return [row.text for row in rows]

    async def delete(self, namespace: str, ref: ArtifactRef) -> bool:
        return await self._database.write(
            lambda transaction: transaction.run("artifact_delete", namespace=namespace, ref=ref) > 0
        )
