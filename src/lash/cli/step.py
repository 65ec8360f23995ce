"""The recorded steps of a process as lines of its log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from lash.cli.effect import outcome_of, status_of
from lash.cli.output import one_line
from lash.cli.text import moment, shortened

if TYPE_CHECKING:
    from lash.model.effect import EffectRecord
    from lash.stores.storage import Storage

_PAGE: Final = 1_000
_OUTCOME_WIDTH: Final = 120
"""How much of a result is shown; `lash effects ls` has all of it."""


class StepLines:
    """The steps that were recorded since a moment. Each is shown once, and again when it ends."""

    def __init__(self, storage: Storage, process_id: str, since_ms: int) -> None:
        self._storage = storage
        self._process_id = process_id
        self._since_ms = since_ms
        self._shown: dict[str, str] = {}

    async def new(self) -> list[tuple[int, str]]:
        """Return the steps that were not shown yet, each as its time and its line, in the order of time."""
        lines: list[tuple[int, str]] = []
        async for record in self._records():
            status = status_of(record)
            if record.updated_at_ms > self._since_ms and self._shown.get(record.replay_key) != status:
                self._shown[record.replay_key] = status
                lines.append((record.updated_at_ms, _line(record, status)))
        return sorted(lines)

    async def _records(self) -> AsyncIterator[EffectRecord]:
        from lash.model.effect import ProcessScope

        scope, after = ProcessScope(process_id=self._process_id), None
        while page := await self._storage.effects.list(scope, after=after, limit=_PAGE):
            for record in page:
                yield record
            after = page[-1].replay_key


def _line(record: EffectRecord, status: str) -> str:
    kind = str(type(record.envelope.command).__struct_config__.tag).replace("_", " ")
    took_ms = record.updated_at_ms - record.created_at_ms
    # Only a step that is claimed before it runs has two times.
    took = f"  took {took_ms / 1_000:g} s" if record.once and status != "running" else ""
    outcome = shortened(one_line(outcome_of(record)), _OUTCOME_WIDTH)
    shown = f"  {outcome}" if outcome and outcome != "null" else ""
    until = f"  until {moment(record.due_at_ms)}" if record.due_at_ms is not None and status == "running" else ""
    return f"{moment(record.updated_at_ms)}     -  {kind} {record.replay_key}  {status}{until}{took}{shown}"
