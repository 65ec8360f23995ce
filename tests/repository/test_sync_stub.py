"""The blocking facade matches the async classes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.write_sync_stub import STUB, TABLE, stub, table


@pytest.mark.parametrize(("path", "text"), [(STUB, stub), (TABLE, table)])
def test_what_is_derived_from_the_async_classes_is_up_to_date(path: Path, text: Callable[[], str]) -> None:
    """After a change of an async class, run ``python -m tools.write_sync_stub``."""
    assert path.read_text(encoding="utf-8") == text()
