"""Snapshots of runs. Each message is stored once for a run, however many snapshots have it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai_harness.step_persistence import ContinuableSnapshot

from lash.adapters.pydantic_ai_harness.sequences import append, every, part
from lash.model.record import Record, RecordDelete, RecordPut
from lash.model.value import JSON, JSONObject
from lash.stores.record import RecordStore

SNAPSHOTS: Final = "harness.snapshot"
MESSAGES: Final = "harness.message"
_FIELDS: Final = (
    "run_id", "step_index", "conversation_id", "parent_run_id", "agent_name", "timestamp", "state", "idempotency_key",
)  # fmt: skip
_MOST: Final = 900
"""How many records are written or read at once."""


class RunSnapshots:
    """The snapshots of a store, of which a run keeps at most so many, and always its newest complete one."""

    def __init__(self, most: int | None) -> None:
        self._most = most

    async def save(self, records: RecordStore, snapshot: ContinuableSnapshot) -> None:
        """Add a snapshot, with the messages that its run does not have yet."""
        run = part(snapshot.run_id)
        dumped: list[JSON] = ModelMessagesTypeAdapter.dump_python(snapshot.messages, mode="json")
        bodies = {_digest(each): each for each in dumped}
        missing = await _missing(records, run, list(bodies))
        puts = [RecordPut(collection=MESSAGES, key=f"{run}/{each}", value=bodies[each]) for each in missing]
        while len(puts) > _MOST:
            await records.put_many(puts[:_MOST])
            puts = puts[_MOST:]
        value: JSONObject = {name: getattr(snapshot, name) for name in _FIELDS}
        value["timestamp"] = snapshot.timestamp.isoformat()
        value["messages"] = [_digest(each) for each in dumped]
        index = {"state": snapshot.state}
        is_new = await append(records, SNAPSHOTS, run, value, snapshot.idempotency_key, index=index, beside=puts)
        if is_new and self._most is not None:
            await self._prune(records, run, self._most)

    async def latest(
        self, records: RecordStore, run_id: str, *, include_interrupted: bool
    ) -> ContinuableSnapshot | None:
        """Return the newest snapshot, by default the newest complete one."""
        run = part(run_id)
        where = None if include_interrupted else {"state": "complete"}
        found = await records.list(SNAPSHOTS, prefix=f"{run}/", where=where, limit=1, reverse=True)
        return await _read(records, run, found[0]) if found else None

    async def all(self, records: RecordStore, run_id: str, *, include_interrupted: bool) -> list[ContinuableSnapshot]:
        """Return the snapshots of a run, the earliest first."""
        run = part(run_id)
        found = await every(records, SNAPSHOTS, f"{run}/", None if include_interrupted else {"state": "complete"})
        return [await _read(records, run, each) for each in found]

    async def _prune(self, records: RecordStore, run: str, most: int) -> None:
        """Remove older snapshots, and the messages that only they have."""
        found = await every(records, SNAPSHOTS, f"{run}/")
        complete = [each.key for each in found if _fields(each)["state"] == "complete"]
        kept = {each.key for each in found[-most:]} | set(complete[-1:])
        removed = [each for each in found if each.key not in kept]
        used = {name for each in found if each.key in kept for name in _fields(each)["messages"]}
        left = {name for each in removed for name in _fields(each)["messages"]} - used
        deletes = [RecordDelete(collection=SNAPSHOTS, key=each.key) for each in removed]
        deletes += [RecordDelete(collection=MESSAGES, key=f"{run}/{name}") for name in sorted(left)]
        for start in range(0, len(deletes), _MOST):
            await records.delete_many(deletes[start : start + _MOST])


def _digest(message: JSON) -> str:
    return hashlib.blake2b(msgspec.json.encode(message), digest_size=16).hexdigest()


def _fields(record: Record) -> dict[str, Any]:
    assert isinstance(record.value, dict), "a snapshot is stored as an object"
    return record.value


async def _missing(records: RecordStore, run: str, names: Sequence[str]) -> list[str]:
    """Return which messages are not stored; most often only the last ones are new."""
    missing: list[str] = []
    for end in range(len(names), 0, -_MOST):
        some = names[max(0, end - _MOST) : end]
        known = await records.get_many(MESSAGES, [f"{run}/{name}" for name in some])
        missing += [name for name in some if f"{run}/{name}" not in known]
    return missing


async def _read(records: RecordStore, run: str, record: Record) -> ContinuableSnapshot:
    fields = _fields(record)
    names: list[str] = fields["messages"]
    bodies: dict[str, Any] = {}
    for start in range(0, len(names), _MOST):
        keys = list(dict.fromkeys(f"{run}/{name}" for name in names[start : start + _MOST]))
        bodies |= {key: found.value for key, found in (await records.get_many(MESSAGES, keys)).items()}
    return _snapshot(fields, [bodies[f"{run}/{name}"] for name in names])


def _snapshot(fields: dict[str, Any], messages: list[Any]) -> ContinuableSnapshot:
    given = {**{name: fields[name] for name in _FIELDS}, "timestamp": datetime.fromisoformat(fields["timestamp"])}
    return ContinuableSnapshot(**given, messages=ModelMessagesTypeAdapter.validate_python(messages))
