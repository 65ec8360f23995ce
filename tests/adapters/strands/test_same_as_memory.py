"""The storage answers as Strands' storage in memory does, over long series of random calls."""

from __future__ import annotations

import random
from typing import Any

import pytest
from strands.storage import InMemoryStorage
from strands.storage.storage import Storage

from lash.adapters.strands import LashStorage

_CALLS = 200
_KEYS = (
    "a",
    "a/b",
    "a/b/c",
    "ab",
    "/a/",
    "a//b",
    "./a",
    "a/../b",
    "..",
    "",
    " ",
    "ö/天",
    "a%2Fb",
    "a b",
    "A",
    "x" * 600,
)
_PREFIXES = (*_KEYS, "a/b/", "x" * 590, "ö", "none")
_VALUES = (b"", b"\x00\xff", b"words that are searched", b"other words", b"z" * 30_000)


async def _answer(storage: Storage, name: str, *arguments: Any) -> object:  # noqa: ANN401 (passed on)
    try:
        return await getattr(storage, name)(*arguments)
    except Exception as error:  # noqa: BLE001 (its kind is compared)
        return type(error).__name__


@pytest.mark.parametrize("seed", range(3))
async def test_storage(url: str, seed: int) -> None:
    """Writes, reads, deletions, lists and searches, of odd and missing keys, whole and in namespaces."""
    chosen = random.Random(seed)
    roots: tuple[Storage, Storage] = (LashStorage(url), InMemoryStorage())
    for _ in range(_CALLS):
        name = chosen.choice(("write", "write", "read", "read", "delete", "list", "list", "search"))
        if name == "write":
            arguments: tuple[Any, ...] = (chosen.choice(_KEYS), chosen.choice(_VALUES))
        elif name == "search":
            arguments = (chosen.choice(("words", "searched words", "")),)
        else:
            arguments = (chosen.choice(_PREFIXES if name == "list" else _KEYS),)
        within = chosen.choice((None, None, "a", "a/b/", "ö"))
        ours, theirs = (each if within is None else each.namespace(within) for each in roots)
        assert await _answer(ours, name, *arguments) == await _answer(theirs, name, *arguments), (
            within,
            name,
            arguments,
        )
