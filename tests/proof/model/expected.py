"""Compares a result with the prediction of a model, which cannot predict ids that the storage makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

_MADE_BY_THE_STORE: Final = frozenset(
    {"registration_hash", "token", "batch_id", "wake_id", "envelope_hash", "key_id"}
    | {"fingerprint", "schedule_id", "cursor"}
)
"""Fields that no model can predict. The two backends are compared on them, one id for one id."""


def like(expect: Callable[[], object]) -> Callable[[object], object]:
    """Return the check for `Machine.step`: the result itself where it equals the prediction, else the prediction."""

    def judge(answer: object) -> object:
        expected = expect()
        return answer if answer is not None and plain(answer) == plain(expected) else expected

    return judge


_HASHED_KEYS: Final = frozenset({"process.cancel_requested", "process.abandon_requested", "process.started"})
"""Events whose replay key contains a hash, unless a caller appended them."""


def plain(value: object) -> object:
    """Return a value as plain data, with a mark wherever the storage makes an id."""
    return _marked(msgspec.to_builtins(value))


def _marked(value: object) -> object:
    if isinstance(value, dict):
        if value.get("event_type") in _HASHED_KEYS:
            value = value | {"replay_key": "*"}
        return {
            key: "*" if key in _MADE_BY_THE_STORE and item is not None else _marked(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_marked(item) for item in value]
    return value
