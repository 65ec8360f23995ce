"""The base of all model values, and the few types that several nouns share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec

JSON: TypeAlias = None | bool | int | float | str | list[Any] | dict[str, Any]
"""A plain JSON value. Nesting is left open here and checked where a value enters the storage."""

JSONObject: TypeAlias = dict[str, Any]

Timestamp: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A point in time with a time zone."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(gt=0)]


def share_default(value: msgspec.Struct, name: str, default: msgspec.Struct | str | int) -> None:
    """Replace an equal value by the default itself.

    A field is left out of the stored form when it holds the default object; an equal one would be written. Sharing
    makes equal values equal in every encoding, and so in every hash.
    """
    held = getattr(value, name)
    if held is not default and held == default:
        msgspec.structs.force_setattr(value, name, default)


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen record. Fields that hold their default are left out of the stored form."""


class ClosedValue(Value, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A frozen record that refuses keys it does not know, so that a misspelt option is an error."""
