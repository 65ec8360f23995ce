"""The changes to records that a turn commits."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.base.codec import decode, encode_to_bytes
from lash.model.record import RecordChange, RecordPut
from lash.model.value import JSON, Value


class _Held(Value, frozen=True, kw_only=True):
    value: JSON = None


class RecordChanges:
    """Puts and deletes of a turn, the last one for each record."""

    def __init__(self, session_id: str) -> None:
        self._session_id: Final = session_id
        self._changes: dict[tuple[str | None, str, str], RecordChange] = {}

    def add(self, change: RecordChange, *, of_storage: bool) -> None:
        """Add a change to a record of the session or of the storage; raise InvalidInput for a value that is not JSON.

        The value is copied: what the agent does to it afterwards changes no record.
        """
        owner = None if of_storage else self._session_id
        owned = msgspec.structs.replace(change, session_id=owner)
        if isinstance(owned, RecordPut) and not isinstance(owned.value, bytes):
            what = f"the value of record {owned.key!r:.80}"
            text = encode_to_bytes(_Held(value=owned.value), _Held, what)
            owned = msgspec.structs.replace(owned, value=decode(text, _Held, what).value)
        self._changes[owner, owned.collection, owned.key] = owned

    def changes(self) -> tuple[RecordChange, ...]:
        """Return the changes, in the order in which each record was first changed."""
        return tuple(self._changes.values())
