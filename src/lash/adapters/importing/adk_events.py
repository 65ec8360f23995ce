"""Rows of ADK's table of events as nodes, in all versions of the table."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from lash.adapters.formats import adk_events
from lash.adapters.importing.found import FoundPart, RawRow
from lash.adapters.importing.pickled import NotPlainData, plain_data
from lash.adapters.importing.source import Row
from lash.adapters.importing.values import moment, with_own_columns
from lash.base.codec import encode_to_bytes
from lash.base.ids import new_id
from lash.errors import InvalidInput
from lash.model.session.node import Node

_TABLE: Final = "events"
_JSON: Final = frozenset(
    {
        "content",
        "grounding_metadata",
        "custom_metadata",
        "usage_metadata",
        "citation_metadata",
        "input_transcription",
        "output_transcription",
    }
)
"""Fields of an event that are JSON in a column of their own, in the old version."""
_FLAGS: Final = frozenset({"partial", "turn_complete", "interrupted"})
_TEXTS: Final = frozenset({"author", "branch", "error_code", "error_message"})
_OLD: Final = _JSON | _FLAGS | _TEXTS | {"actions", "long_running_tool_ids_json"}


class EventReader:
    """Reads the events of a database. ``is_whole``: the column ``event_data`` has the event with all its fields."""

    def __init__(self, columns: Collection[str], known: Collection[str], *, is_whole: bool) -> None:
        self._is_old = "event_data" not in columns
        self._is_whole = is_whole
        self._known = {*known, *(_OLD if self._is_old else ("event_data",))}

    def path(self) -> EventPath:
        """Return a new path for the events of a session."""
        return EventPath(self)

    def encoded(self, row: Row) -> tuple[str, Mapping[str, Any]]:
        """Return an event as JSON text, and the same decoded.

        Raises TypeError, ValueError, RecursionError or NotPlainData.
        """
        if self._is_old:
            event = _old_event(row)
        else:
            event = _object(row["event_data"])
            if self._is_whole:
                return row["event_data"], event
            times = {} if event.get("timestamp") is not None else {"timestamp": _seconds(row)}
            event |= {"id": row["id"], "invocation_id": row["invocation_id"], **times}
        return json.dumps(event, ensure_ascii=False, separators=(",", ":")), event

    def own_columns(self, row: Row) -> list[RawRow]:
        """Return the row if the program has columns of its own in the table."""
        return with_own_columns(_TABLE, row, self._known)


class EventPath:
    """The events of one session, each below the one before."""

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader
        self._leaf: str | None = None
        self._taken: set[str] = set()
        self.last_seconds = 0.0

    def piece(self, row: Row) -> FoundPart:
        """Return the node of a row; the row itself if it is not an event."""
        try:
            encoded, event = self._reader.encoded(row)
            seconds = event.get("timestamp")
            self.last_seconds = float(seconds) if isinstance(seconds, int | float) else _seconds(row)
            node = adk_events.node_of(
                encoded,
                _text(event),
                author=str(event.get("author")),
                seconds=self.last_seconds,
                node_id=self._node_id(event),
                parent_id=self._leaf,
            )
            size = len(encode_to_bytes(node, Node, "event"))
        except (NotPlainData, InvalidInput) as error:
            return FoundPart(raw=[RawRow(table=_TABLE, row=row, reason=str(error))])
        except (TypeError, ValueError, OverflowError, RecursionError):
            return FoundPart(raw=[RawRow(table=_TABLE, row=row, reason="it is not the JSON of an event")])
        self._leaf = node.node_id
        self._taken.add(node.node_id)
        return FoundPart(nodes=[node], raw=self._reader.own_columns(row), counts={"event": 1}, size=size)

    def _node_id(self, event: Mapping[str, Any]) -> str:
        event_id = event.get("id")
        if not isinstance(event_id, str) or not event_id.strip():
            return new_id()
        node_id = adk_events.node_id_of(event_id)
        return f"{node_id}~{new_id()}" if node_id in self._taken else node_id


def _old_event(row: Row) -> dict[str, Any]:
    """Return the event of a row with a column for each field."""
    tool_ids = row.get("long_running_tool_ids_json")
    event: dict[str, Any] = {
        "id": row["id"],
        "invocation_id": row["invocation_id"],
        "timestamp": _seconds(row),
        "long_running_tool_ids": json.loads(tool_ids) if tool_ids else [],
        "actions": {} if row.get("actions") is None else plain_data(row["actions"]),
    }
    event |= {name: row[name] for name in _TEXTS if row.get(name) is not None}
    event |= {name: bool(row[name]) for name in _FLAGS if row.get(name) is not None}
    for name in _JSON:
        value = json.loads(row[name]) if row.get(name) is not None else None
        if value is not None:
            event[name] = value
    if not isinstance(event["actions"], dict):
        raise NotPlainData("its actions are not an object")
    return event


def _object(text: object) -> dict[str, Any]:
    value = json.loads(text) if isinstance(text, str) else None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 (a value in a database, not an argument)
    return value


def _seconds(row: Row) -> float:
    found = moment(row["timestamp"])
    if found is None:
        raise ValueError("it has no time")
    return found.timestamp()


def _text(event: Mapping[str, Any]) -> str:
    """Return what a person reads of an event: its texts without the thoughts."""
    content = event.get("content")
    parts = content.get("parts") if isinstance(content, Mapping) else None
    shown = (
        each
        for each in (parts if isinstance(parts, list) else ())
        if isinstance(each, Mapping) and not each.get("thought")
    )
    return "\n".join(each["text"] for each in shown if isinstance(each.get("text"), str) and each["text"])
