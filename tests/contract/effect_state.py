"""Shared by the contracts of effects: the visible state of a scope, and calls that must change nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, NamedTuple, TypeVar

import pytest

from lash.errors import LashError
from lash.model.effect import EffectGroup, EffectRecord, ExecutionScope
from lash.stores.storage import Storage
from tests.factories.effect import TURN
from tests.factories.session import owner

TTL: Final = 1_000
"""How long a claim lasts, in milliseconds."""
ANN, BOB = owner("ann"), owner("bob")
"""Two workers."""

E = TypeVar("E", bound=LashError)


class Seen(NamedTuple):
    """Everything that the public API shows of one scope: its effects, and its group ``g``."""

    effects: tuple[EffectRecord, ...]
    group: EffectGroup | None


async def seen(storage: Storage, scope: ExecutionScope = TURN) -> Seen:
    """Read a scope through the public API."""
    return Seen(await storage.effects.list(scope), await storage.effects.group(scope, "g"))


async def refuse(
    storage: Storage,
    call: Awaitable[object],
    error: type[E],
    *,
    naming: str | None = None,
    scope: ExecutionScope = TURN,
) -> E:
    """Assert that the call raises exactly this error with these texts, and changes nothing."""
    before = await seen(storage, scope)
    with pytest.raises(error) as raised:
        await call
    assert type(raised.value) is error, raised.value
    assert naming is None or naming in str(raised.value), raised.value
    assert await seen(storage, scope) == before
    return raised.value


async def stored(storage: Storage, key: str = "k", scope: ExecutionScope = TURN) -> EffectRecord:
    """Return the record of an effect that must exist."""
    record = await storage.effects.get(scope, key)
    assert record is not None, key
    return record
