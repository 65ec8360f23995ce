"""Runs, events, snapshots and tool effects of pydantic-ai's harness, as records of a storage."""

from __future__ import annotations

from typing import Final, TypeVar

from pydantic import TypeAdapter
from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord

from lash.adapters.attached import Attached, StorageSource
from lash.adapters.names import short
from lash.adapters.pydantic_ai_harness.sequences import append, every, part
from lash.adapters.pydantic_ai_harness.snapshots import RunSnapshots
from lash.errors import RecordConflict
from lash.model.record import Record
from lash.model.value import JSONObject
from lash.stores.storage import Storage

T = TypeVar("T")

RUNS: Final = "harness.run"
EVENTS: Final = "harness.event"
EFFECTS: Final = "harness.effect"
_runs: Final = TypeAdapter(RunRecord)
_events: Final = TypeAdapter(StepEvent)
_effects: Final = TypeAdapter(ToolEffectRecord)


class LashStepStore:
    """A `StepStore` of the harness: ``StepPersistence(store=LashStepStore("sqlite:///steps.db"))``.

    It takes a storage URL or an open storage, and is used from any event loop and any process. An event or a snapshot
    that comes again with its idempotency key is stored once. The messages of snapshots are stored once for each run.
    ``max_snapshots_per_run`` keeps the newest snapshots of a run, and always the newest complete one.
    """

    def __init__(self, source: StorageSource, *, max_snapshots_per_run: int | None = None) -> None:
        given: object = max_snapshots_per_run
        if given is not None and (not isinstance(given, int) or given < 1):
            raise ValueError(f"max_snapshots_per_run must be an int >= 1 or None, got {max_snapshots_per_run!r}")
        self._attached = Attached(source)
        self._snapshots = RunSnapshots(max_snapshots_per_run)

    async def register_run(self, record: RunRecord) -> None:
        """Store a run; raise ValueError if its id is taken, unless by the same registration."""

        async def write(storage: Storage) -> None:
            index = {"parent": record.parent_run_id, "conversation": record.conversation_id}
            try:
                await storage.records.put(
                    RUNS,
                    short(record.run_id, 200),
                    _plain(_runs, record),
                    index={name: short(value, 200) for name, value in index.items() if value is not None},
                    expected_version=0,
                )
            except RecordConflict:
                known = await storage.records.get(RUNS, short(record.run_id, 200))
                if known is None or record.registration_id is None:
                    raise ValueError(f"run id {record.run_id!r} is taken") from None
                if _read(_runs, known).registration_id != record.registration_id:
                    raise ValueError(f"run id {record.run_id!r} is taken") from None

        await self._attached.run(write)

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return a run; None if there is none."""
        found = await self._attached.run(lambda storage: storage.records.get(RUNS, short(run_id, 200)))
        return None if found is None else _read(_runs, found)

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """Return the runs with this parent and of this conversation, the earliest first."""
        # A conversation has fewer runs than an orchestrator.
        given = {"conversation": conversation_id, "parent": parent_run_id}
        where = {name: short(value, 200) for name, value in given.items() if value is not None}
        found = await self._attached.run(lambda storage: every(storage.records, RUNS, "", where))
        return sorted((_read(_runs, record) for record in found), key=lambda run: run.started_at)

    async def append_event(self, event: StepEvent) -> None:
        """Add an event to its run, once for each idempotency key."""
        run, value = part(event.run_id), _plain(_events, event)
        await self._attached.run(lambda storage: append(storage.records, EVENTS, run, value, event.idempotency_key))

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """Return the events of a run in the order in which they were added."""
        prefix = f"{part(run_id)}/"
        found = await self._attached.run(lambda storage: every(storage.records, EVENTS, prefix))
        return [_read(_events, record) for record in found]

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Add a snapshot to its run, once for each idempotency key."""
        await self._attached.run(lambda storage: self._snapshots.save(storage.records, snapshot))

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """Return the newest complete snapshot of a run, or the newest of any state."""
        return await self._attached.run(
            lambda storage: self._snapshots.latest(storage.records, run_id, include_interrupted=include_interrupted)
        )

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[ContinuableSnapshot]:
        """Return the snapshots of a run that are kept, in the order in which they were added."""
        return await self._attached.run(
            lambda storage: self._snapshots.all(storage.records, run_id, include_interrupted=include_interrupted)
        )

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Store what is known about a tool call, in the place of what was known before."""
        key = f"{part(record.run_id)}/{part(record.tool_call_id)}"
        value, index = _plain(_effects, record), {"status": record.status}
        await self._attached.run(lambda storage: storage.records.put(EFFECTS, key, value, index=index))

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return what is known about a tool call; None if it was never recorded."""
        key = f"{part(run_id)}/{part(tool_call_id)}"
        found = await self._attached.run(lambda storage: storage.records.get(EFFECTS, key))
        return None if found is None else _read(_effects, found)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the tool calls of a run that have started and not ended, the earliest first."""
        prefix, where = f"{part(run_id)}/", {"status": "started"}
        found = await self._attached.run(lambda storage: every(storage.records, EFFECTS, prefix, where))
        return sorted((_read(_effects, record) for record in found), key=lambda effect: effect.started_at)


def _plain(adapter: TypeAdapter[T], value: T) -> JSONObject:
    plain: JSONObject = adapter.dump_python(value, mode="json")
    return plain


def _read(adapter: TypeAdapter[T], record: Record) -> T:
    return adapter.validate_python(record.value)
