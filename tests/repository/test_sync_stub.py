"""The blocking facade is that of the async classes as they are now."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.write_sync_stub import STUB, TABLE, stub, table


@pytest.mark.parametrize(("path", "text"), [(STUB, stub), (TABLE, table)])
def test_what_is_derived_from_the_async_classes_is_up_to_date(path: Path, text: Callable[[], str]) -> None:
    """Whoever changes an async class runs ``python -m tools.write_sync_stub``."""
    assert path.read_text(encoding="utf-8") == text()
