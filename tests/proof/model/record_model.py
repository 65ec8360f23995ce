"""The expected behaviour of records: a dictionary with versions, owners and expiry."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lash.model.record import Record, RecordChange, RecordPut
from tests.proof.model.base_model import Sessions
from tests.proof.model.kit import Refused

Name = tuple[str | None, str, str]


class RecordModel:
    """All records, expired ones until they are pruned or replaced."""

    def __init__(self, sessions: Sessions, now_ms: Callable[[], int]) -> None:
        self._sessions = sessions
        self._now_ms = now_ms
        self.kept: dict[Name, Record] = {}

    def change(self, changes: Sequence[RecordChange]) -> list[int]:
        """Make all changes, or refuse; return the versions before."""
        for each in changes:
            if each.session_id is not None:
                self._sessions.need(each.session_id)
        before = [self.version(each) for each in changes]
        for each, actual in zip(changes, before, strict=True):
            if each.expected_version not in (None, actual):
                raise Refused("RecordConflict", key=each.key, expected=each.expected_version, actual=actual)
        for each, actual in zip(changes, before, strict=True):
            self._write(each, actual)
        return before

    def version(self, change: RecordChange) -> int:
        found = self.get(change.session_id, change.collection, change.key)
        return 0 if found is None else found.version

    def get(self, session_id: str | None, collection: str, key: str) -> Record | None:
        if session_id is not None:
            self._sessions.need(session_id)
        found = self.kept.get((session_id, collection, key))
        return found if found is not None and self._is_live(found) else None

    def list(
        self,
        session_id: str | None,
        collection: str,
        *,
        prefix: str,
        where: dict[str, str],
        after: str | None,
        limit: int,
        reverse: bool,
    ) -> tuple[Record, ...]:
        if session_id is not None:
            self._sessions.need(session_id)
        found = [
            record
            for (owner, place, key), record in sorted(self.kept.items(), key=lambda item: item[0][2], reverse=reverse)
            if (owner, place) == (session_id, collection)
            and key.startswith(prefix)
            and self._is_live(record)
            and where.items() <= record.index.items()
            and (after is None or (key < after if reverse else key > after))
        ]
        return tuple(found[:limit])

    def prune(self) -> int:
        gone = [name for name, record in self.kept.items() if not self._is_live(record)]
        for name in gone:
            del self.kept[name]
        return len(gone)

    def drop_owner(self, session_id: str) -> None:
        self.kept = {name: record for name, record in self.kept.items() if name[0] != session_id}

    def _is_live(self, record: Record) -> bool:
        return record.expires_at_ms is None or record.expires_at_ms > self._now_ms()

    def _write(self, change: RecordChange, before: int) -> None:
        name = (change.session_id, change.collection, change.key)
        if not isinstance(change, RecordPut):
            self.kept.pop(name, None)
            return
        now_ms = self._now_ms()
        self.kept[name] = Record(
            collection=change.collection,
            key=change.key,
            session_id=change.session_id,
            value=change.value,
            version=before + 1,
            index=dict(change.index),
            expires_at_ms=None if change.ttl_ms is None else now_ms + change.ttl_ms,
            created_at_ms=self.kept[name].created_at_ms if before else now_ms,
            updated_at_ms=now_ms,
        )
