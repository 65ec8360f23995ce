"""The state of sessions, users and apps of ADK.

The state of a session is part of its checkpoint. That of a user or an app is one record for each key, so that sessions
that change different keys at once do not meet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from lash.adapters.formats.adk_names import SessionName, key_part, key_prefix
from lash.base.compression import BlobRef
from lash.base.limits import MAX_PAGE
from lash.base.shapes import convert
from lash.model.record import RecordPut
from lash.model.session.checkpoint import Checkpoint, CheckpointDraft, CheckpointManifest, TurnState
from lash.stores.storage import Storage

Values: TypeAlias = dict[str, Any]
APP_STATE: Final = "adk.app"
USER_STATE: Final = "adk.user"
_SMALL: Final = "adk.state"
"""The component with all small values of a session."""
_LARGE: Final = "adk.state:"
"""The start of the names of components with one large value."""
_SMALL_LENGTH: Final = 1_024
"""A value whose JSON is longer has a component of its own: it is not written again when another value changes."""
_OPTION: Final = "adk"


class Delta(msgspec.Struct, frozen=True):
    """Changes of state by scope, as JSON values and without the prefixes of the keys."""

    app: Values
    user: Values
    session: Values

    def records(self, name: SessionName) -> Iterator[RecordPut]:
        """Return the changes of the records of the app and the user."""
        app, user = key_prefix(name.app_name), key_prefix(name.app_name, name.user_id)
        for collection, prefix, values in ((APP_STATE, app, self.app), (USER_STATE, user, self.user)):
            for key, value in values.items():
                yield RecordPut(
                    collection=collection, key=prefix + key_part(key), value={"key": key, "json": json.dumps(value)}
                )


class StoredState(msgspec.Struct, frozen=True):
    """The state of a session at a revision: its small values, and all of its components by ref."""

    revision: int
    updated: float
    """The time of the last event, or of the creation, in seconds."""
    leaf: str | None
    """The node of the last event."""
    small: Values
    components: Mapping[str, BlobRef]

    def change(self, delta: Values) -> tuple[Values, dict[str, bytes | BlobRef]]:
        """Return the small values and the components after a change."""
        small = self.small | delta
        components: dict[str, bytes | BlobRef] = dict(self.components)
        for key, value in delta.items():
            components.pop(_large_name(key), None)
            encoded = json.dumps(value)
            if len(encoded) > _SMALL_LENGTH:
                del small[key]
                components[_large_name(key)] = json.dumps([key, value]).encode()
        if delta:
            components[_SMALL] = json.dumps(small).encode()
        return small, components


NO_STATE: Final = StoredState(0, 0.0, None, {}, {})


def draft(components: Mapping[str, bytes | BlobRef], updated: float) -> CheckpointDraft:
    """Return the checkpoint of a session whose last event has this time."""
    return CheckpointDraft(
        turn_state=TurnState(protocol_turn_options={_OPTION: {"updated": updated}}), components=components
    )


def updated_at(manifest: CheckpointManifest) -> float:
    """Return the time of the last event of a session; 0.0 if ADK did not write its checkpoint."""
    option = manifest.turn_state.protocol_turn_options.get(_OPTION)
    updated = option.get("updated") if isinstance(option, dict) else None
    return float(updated) if isinstance(updated, int | float) else 0.0


def small_values(checkpoint: Checkpoint) -> Values:
    """Return the small values of a session."""
    values: Values = json.loads(checkpoint.components.get(_SMALL, b"{}"))
    return values


def session_values(checkpoint: Checkpoint) -> Values:
    """Return the state of a session, without that of its user and app."""
    values = small_values(checkpoint)
    for name, content in checkpoint.components.items():
        if name.startswith(_LARGE):
            key, value = json.loads(content)
            values[key] = value
    return values


async def app_values(storage: Storage, app_name: str) -> Values:
    """Return the state of an app, without prefixes."""
    return {key: value for _, key, value in await _read(storage, APP_STATE, key_prefix(app_name))}


async def user_values(storage: Storage, app_name: str, user_id: str) -> Values:
    """Return the state of a user of an app, without prefixes."""
    return {key: value for _, key, value in await _read(storage, USER_STATE, key_prefix(app_name, user_id))}


async def values_by_user(storage: Storage, app_name: str) -> dict[str, Values]:
    """Return the state of each user of an app, by the start of the user's keys."""
    by_user: dict[str, Values] = {}
    prefix = key_prefix(app_name)
    for record_key, key, value in await _read(storage, USER_STATE, prefix):
        user, _, _ = record_key.removeprefix(prefix).partition("/")
        by_user.setdefault(f"{prefix}{user}/", {})[key] = value
    return by_user


async def _read(storage: Storage, collection: str, prefix: str) -> list[tuple[str, str, Any]]:
    """Return the keys of the records below a prefix, with the keys and values of the state."""
    found: list[tuple[str, str, Any]] = []
    while True:
        page = await storage.records.list(
            collection, prefix=prefix, after=found[-1][0] if found else None, limit=MAX_PAGE
        )
        for record in page:
            stored = convert(record.value, dict[str, str])
            found.append((record.key, stored["key"], json.loads(stored["json"])))
        if len(page) < MAX_PAGE:
            return found


def _large_name(key: str) -> str:
    return _LARGE + hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
