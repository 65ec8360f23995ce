"""The visible state of triggers, to compare before and after."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, NamedTuple

import pytest

from lash.errors import LashError
from lash.model.trigger.trigger import TriggerFilter, TriggerSubscription
from lash.stores.storage import Storage
from tests.contract.process_state import World, world


class TriggerWorld(NamedTuple):
    """All subscriptions and processes, as the public API shows them."""

    subscriptions: tuple[TriggerSubscription, ...]
    processes: World


async def trigger_world(storage: Storage) -> TriggerWorld:
    """Return the visible state of a storage."""
    page = await storage.triggers.list(limit=1_000)
    assert page.next_cursor is None
    return TriggerWorld(page.subscriptions, await world(storage))


async def refuse(storage: Storage, call: Awaitable[object], error: type[LashError], *saying: str) -> LashError:
    """Assert that the call raises exactly this error with these texts, and changes nothing."""
    before = await trigger_world(storage)
    with pytest.raises(error) as raised:
        await call
    assert type(raised.value) is error, raised.value
    for each in saying:
        assert each in str(raised.value), raised.value
    assert await trigger_world(storage) == before
    return raised.value


async def listed(storage: Storage, **wanted: Any) -> list[str]:  # noqa: ANN401 - the fields of a filter
    """Return the keys of the subscriptions that a filter with these fields finds, in the order of the list."""
    page = await storage.triggers.list(TriggerFilter(**wanted))
    return [subscription.key for subscription in page.subscriptions]
