"""Marks the tests below this directory as `tests.proof.selection` says."""

from __future__ import annotations

import pytest

from tests.proof.selection import mark_of


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests before ``-m`` chooses among them."""
    for item in items:
        mark = mark_of(item.path)
        if mark is not None:
            item.add_marker(mark)
