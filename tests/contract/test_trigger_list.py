"""Laws of lists of trigger subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from lash.errors import InvalidInput
from lash.model.process.process import ProcessIdentity
from lash.model.trigger.trigger import TriggerFilter
from lash.testing.harness import Harness
from tests.contract.trigger_state import listed, refuse
from tests.factories.session import created
from tests.factories.trigger import BUTTON, HOST, by_session, subscribed


class TestTriggerList:
    """Laws of finding subscriptions."""

    async def test_lists_filter_by_all_that_is_named(self, harness: Harness) -> None:
        """Filters can be combined; definitions are compared as JSON values."""
        storage = await harness.open()
        for session in ("s", "t"):
            await created(storage, session)
        await subscribed(storage, "a", identity=ProcessIdentity(kind="k", definition={"a": 1, "b": [2]}))
        await subscribed(storage, "a", owner=by_session("s"), source_key="red")
        await subscribed(storage, "b", owner=by_session("s", "frame"), identity=ProcessIdentity(kind="k", definition=0))
        await subscribed(storage, "c", owner=by_session("t"), source_type="ui.key")
        await storage.triggers.disable(by_session("t"), "c", revision=1)
        assert await listed(storage) == ["c", "b", "a", "a"]
        assert await listed(storage, owner=HOST) == ["a"]
        assert await listed(storage, owner=by_session("s", "other")) == ["b", "a"]
        assert await listed(storage, session_id="s") == ["b", "a"]
        assert await listed(storage, session_id="s", owner=by_session("s")) == ["b", "a"]
        assert await listed(storage, session_id="none") == []
        assert await listed(storage, key="a") == ["a", "a"]
        assert await listed(storage, key="a", session_id="s") == ["a"]
        assert await listed(storage, source_type=BUTTON) == ["b", "a", "a"]
        assert await listed(storage, source_key="red") == ["a"]
        assert await listed(storage, source_key="red", source_type="ui.key") == []
        assert await listed(storage, definition={"b": [2], "a": 1}) == ["a"]
        assert await listed(storage, definition={"a": 1}) == []
        assert await listed(storage, definition=0) == ["b"]
        assert await listed(storage, definition=None) == []
        assert await listed(storage, enabled=False) == ["c"]
        assert await listed(storage, enabled=True) == ["b", "a", "a"]
        assert await listed(storage, enabled=True, session_id="t") == []

    @pytest.mark.parametrize("wanted", [TriggerFilter(), TriggerFilter(source_type=BUTTON)])
    async def test_pages_do_not_overlap(self, harness: Harness, wanted: TriggerFilter) -> None:
        """Pages of any size show every subscription once, newest first, despite concurrent registrations."""
        storage = await harness.open()
        keys = [f"k{number}" for number in range(7)]
        await subscribed(storage, *keys)
        seen: list[str] = []
        page = await storage.triggers.list(wanted, limit=3)
        while True:
            seen += [each.key for each in page.subscriptions]
            await subscribed(storage, f"late{len(seen)}")
            if page.next_cursor is None:
                break
            page = await storage.triggers.list(wanted, limit=3, cursor=page.next_cursor)
        assert seen == keys[::-1]

    @pytest.mark.parametrize(
        "bad",
        [
            {"limit": 0},
            {"limit": 1_001},
            {"cursor": "nonsense"},
            {"cursor": "cDE6Mw=="},
            {"wanted": None},
            {"wanted": TriggerFilter(enabled=1)},  # type: ignore[arg-type]
            {"wanted": TriggerFilter(owner="host")},  # type: ignore[arg-type]
            {"wanted": TriggerFilter(owner=HOST, session_id="s")},
            {"wanted": TriggerFilter(owner=by_session("t"), session_id="s")},
            {"wanted": TriggerFilter(session_id="")},
            {"wanted": TriggerFilter(definition=float("nan"))},
        ],
    )
    async def test_a_bad_list_is_refused(self, harness: Harness, bad: dict[str, Any]) -> None:
        """Invalid limits, cursors and filters are refused, including the cursor of another list."""
        storage = await harness.open()
        await refuse(storage, storage.triggers.list(**bad), InvalidInput)
