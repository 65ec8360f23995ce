"""A store of LangGraph on the records of a lash storage."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self, cast

import msgspec
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)

from lash.adapters.attached import Attached, LeftOpen, StorageSource
from lash.adapters.langgraph import matching, namespaces
from lash.adapters.langgraph.namespaces import Namespace
from lash.base.shapes import convert
from lash.errors import RecordConflict
from lash.model.record import Record, RecordDelete, RecordPut
from lash.stores.storage import Storage

ITEMS: Final = "langgraph.store"
_PAGE: Final = 500
_MINUTE_MS: Final = 60_000


class ItemContent(msgspec.Struct, frozen=True, kw_only=True):
    """What the record of an item holds. ``vectors`` are the embeddings of its texts, by path.

    ``created_at`` is that of an imported item; others were created with their record.
    """

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    updated_at: datetime
    created_at: datetime | None = None
    ttl_minutes: float | None = None
    vectors: dict[str, bytes] = {}


class LashStore(LeftOpen, BaseStore):
    """Keeps items of graphs across threads: ``builder.compile(store=LashStore("sqlite:///memory.db"))``.

    One object serves blocking and async graphs, from any thread and any event loop. Items are records of the storage.
    An item that has expired is absent at once, and workers remove it; so does `sweep_ttl`. With ``index``, a search
    compares the embedding of its query with that of each item below its prefix.
    """

    supports_ttl = True

    __slots__ = ("_attached", "_fields", "embeddings", "index_config", "ttl_config")

    def __init__(
        self, source: StorageSource, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> None:
        self._attached = Attached(source)
        self.ttl_config = ttl
        self.index_config = index
        self.embeddings = None if index is None else ensure_embeddings(index.get("embed"))
        self._fields = [] if index is None else _field_paths(index)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: the reads, then the writes, of which the last of a key counts."""
        plan = _Plan(list(ops), self._texts)
        if self.embeddings is not None:
            if plan.texts:
                plan.embedded = dict(zip(plan.texts, self.embeddings.embed_documents(plan.texts), strict=True))
            plan.queries = {query: self.embeddings.embed_query(query) for query in plan.wanted_queries}
        return self._attached.block(plan.run)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: the reads, then the writes, of which the last of a key counts."""
        plan = _Plan(list(ops), self._texts)
        if self.embeddings is not None:
            if plan.texts:
                plan.embedded = dict(zip(plan.texts, await self.embeddings.aembed_documents(plan.texts), strict=True))
            plan.queries = {query: await self.embeddings.aembed_query(query) for query in plan.wanted_queries}
        return await self._attached.run(plan.run)

    def sweep_ttl(self) -> int:
        """Remove expired records of the storage, and return how many there were; workers do it regularly."""
        return self._attached.block(_sweep)

    async def asweep_ttl(self) -> int:
        """Remove expired records of the storage, and return how many there were; workers do it regularly."""
        return await self._attached.run(_sweep)

    def _texts(self, op: PutOp) -> dict[str, str]:
        """Return the texts of an item that are embedded, by the path at which they are."""
        if self.embeddings is None or op.value is None or op.index is False:
            return {}
        texts: dict[str, str] = {}
        for path in self._fields if op.index is None else op.index:
            found = get_text_at_path(op.value, path if path == "$" else tokenize_path(path))
            texts |= {path if len(found) == 1 else f"{path}.{place}": text for place, text in enumerate(found)}
        return texts


class _Plan:
    """The operations of a batch, with what must be embedded before they run in the event loop of the storage."""

    def __init__(self, ops: list[Op], find_texts: Callable[[PutOp], dict[str, str]]) -> None:
        for op in ops:
            validate_op_namespace(op)
        self._ops = ops
        self._puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        self._texts = {name: find_texts(op) for name, op in self._puts.items()}
        self.texts = list(dict.fromkeys(text for found in self._texts.values() for text in found.values()))
        self.wanted_queries = {op.query for op in ops if isinstance(op, SearchOp) and op.query}
        self.embedded: dict[str, Sequence[float]] = {}
        self.queries: dict[str, Sequence[float]] = {}

    async def run(self, storage: Storage) -> list[Result]:
        """Run the operations, and return their results in order."""
        results: list[Result] = []
        for op in self._ops:
            match op:
                case GetOp():
                    results.append(await _get(storage, op))
                case SearchOp():
                    results.append(await _search(storage, op, self.queries.get(op.query or "")))
                case ListNamespacesOp():
                    results.append(await _list_namespaces(storage, op))
                case PutOp():
                    results.append(None)
                case _:
                    raise TypeError(f"unknown operation {type(op).__name__}")
        await self._write(storage)
        return results

    async def _write(self, storage: Storage) -> None:
        deletes = [
            RecordDelete(collection=ITEMS, key=namespaces.item_key(*name))
            for name, op in self._puts.items()
            if op.value is None
        ]
        puts = [self._put(op) for op in self._puts.values() if op.value is not None]
        for start in range(0, len(deletes), _PAGE):
            await storage.records.delete_many(deletes[start : start + _PAGE])
        for start in range(0, len(puts), _PAGE):
            await storage.records.put_many(puts[start : start + _PAGE])

    def _put(self, op: PutOp) -> RecordPut:
        texts = self._texts[op.namespace, op.key]
        content = ItemContent(
            namespace=op.namespace,
            key=op.key,
            value=dict(op.value or {}),
            updated_at=datetime.now(UTC),
            ttl_minutes=op.ttl,
            vectors={path: matching.pack_vector(self.embedded[text]) for path, text in texts.items()},
        )
        return RecordPut(
            collection=ITEMS,
            key=namespaces.item_key(op.namespace, op.key),
            value=msgspec.to_builtins(content),
            ttl_ms=_ttl_ms(op.ttl),
        )


class _Found(NamedTuple):
    """An item as it is stored."""

    record: Record
    content: ItemContent

    @classmethod
    def of(cls, record: Record) -> Self:
        return cls(record, convert(record.value, ItemContent))

    def score(self, query: Sequence[float] | None) -> float | None:
        """Return how similar its most similar text is to a query; None without a query or without a text."""
        if query is None or not self.content.vectors:
            return None
        vectors = map(matching.unpack_vector, self.content.vectors.values())
        return max(matching.similarity(query, vector) for vector in vectors)

    def item(self) -> Item:
        return Item(**self._item_fields())

    def search_item(self, score: float | None) -> SearchItem:
        return SearchItem(**self._item_fields(), score=score)

    def _item_fields(self) -> dict[str, Any]:
        return {
            "namespace": self.content.namespace,
            "key": self.content.key,
            "value": self.content.value,
            "created_at": self.content.created_at or datetime.fromtimestamp(self.record.created_at_ms / 1000, UTC),
            "updated_at": self.content.updated_at,
        }


async def _get(storage: Storage, op: GetOp) -> Item | None:
    record = await storage.records.get(ITEMS, namespaces.item_key(op.namespace, op.key))
    if record is None:
        return None
    found = _Found.of(record)
    if op.refresh_ttl:
        await _refresh(storage, [found])
    return found.item()


async def _search(storage: Storage, op: SearchOp, query: Sequence[float] | None) -> list[SearchItem]:
    """Return a page of the items below a prefix: the most similar to the query first, then the last written."""
    found = [each async for each in _below(storage, op.namespace_prefix)]
    scored = [(each, each.score(query)) for each in found if matching.matches_filter(each.content.value, op.filter)]
    scored.sort(key=lambda each: each[0].content.updated_at, reverse=True)
    scored.sort(key=lambda each: -2.0 if each[1] is None else each[1], reverse=True)
    page = scored[op.offset : op.offset + op.limit]
    if op.refresh_ttl:
        await _refresh(storage, [each for each, _ in page])
    return [each.search_item(score) for each, score in page]


async def _list_namespaces(storage: Storage, op: ListNamespacesOp) -> list[Namespace]:
    """Return namespaces by reading one record of each."""
    found: dict[Namespace, None] = {}
    after: str | None = None
    while page := await storage.records.list(ITEMS, after=after, limit=1):
        namespace = _Found.of(page[0]).content.namespace
        after = namespaces.after_namespace(namespace)
        if all(matching.matches_namespace(namespace, condition) for condition in op.match_conditions or ()):
            found[namespace[: op.max_depth]] = None
    return sorted(found)[op.offset : op.offset + op.limit]


async def _below(storage: Storage, prefix: Namespace) -> AsyncIterator[_Found]:
    start, after = namespaces.key_prefix(prefix), None
    while True:
        page = await storage.records.list(ITEMS, prefix=start, after=after, limit=_PAGE)
        for record in page:
            yield _Found.of(record)
        if len(page) < _PAGE:
            return
        after = page[-1].key


async def _refresh(storage: Storage, items: Sequence[_Found]) -> None:
    """Begin the time to live of items again; an item that was written meanwhile is left as it is."""
    for record, content in items:
        if content.ttl_minutes is None:
            continue
        with contextlib.suppress(RecordConflict):
            await storage.records.put(
                ITEMS,
                record.key,
                record.value,
                ttl_ms=_ttl_ms(content.ttl_minutes),
                expected_version=record.version,
            )


def _ttl_ms(minutes: float | None) -> int | None:
    return None if minutes is None else max(1, round(minutes * _MINUTE_MS))


def _field_paths(index: IndexConfig) -> list[str]:
    """Return the paths of the texts to embed. LangGraph's SQLite store calls them ``text_fields``."""
    paths: object = index.get("fields") or index.get("text_fields") or ["$"]
    return [paths] if isinstance(paths, str) else list(cast("Sequence[str]", paths))


async def _sweep(storage: Storage) -> int:
    removed = 0
    while count := await storage.records.prune(limit=_PAGE):
        removed += count
    return removed
