"""What users of LangGraph's stores rely on beyond its own tests."""

from __future__ import annotations

import lash
from lash.adapters.langgraph import LashStore


def test_filters_compare_numbers_and_texts(url: str) -> None:
    """Numbers compare as numbers, also as text; dates compare as text; what has no order does not match."""
    store = LashStore(url)
    for key, value in {"a": "2024-05-01", "b": "2025", "c": 3, "d": "20", "e": None}.items():
        store.put(("n",), key, {"value": value})

    def keys(**wanted: object) -> set[str]:
        operators = {f"${name}": value for name, value in wanted.items()}
        return {item.key for item in store.search(("n",), filter={"value": operators})}

    assert keys(gt="2024-12") == {"b"}
    assert keys(gte="2024-05-01", lt="2024-06") == {"a"}
    assert keys(gt=10) == {"b", "d"}
    assert keys(lte=3) == {"c"}
    assert keys(gt=None) == set()


async def test_a_storage_of_the_program(url: str) -> None:
    """It shares its data with an object on the URL, and stays open."""
    async with await lash.open(url) as storage:
        await LashStore(storage).aput(("n",), "a", {"value": 1})
        item = await LashStore(url).aget(("n",), "a")
        assert item is not None
        assert item.value == {"value": 1}
