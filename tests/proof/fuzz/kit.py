"""Hostile values, and their allowed results: a value, or a lash error that says what is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

import lash

T = TypeVar("T")

_EXAMPLES: Final = int(os.environ.get("LASH_FUZZ_EXAMPLES", "0"))
fuzzed: Final = settings(
    max_examples=_EXAMPLES or 30,
    derandomize=not _EXAMPLES,
    database=None,
    deadline=None,
    # Failures are shrunk only in the long form: in the short one the first failure is the same each time.
    phases=[Phase.explicit, Phase.generate, Phase.target, *([Phase.shrink] if _EXAMPLES else [])],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    print_blob=True,
)
"""Few inputs, always the same, in ``make test``; many and new ones in ``make fuzz``."""

LONG_NUMBER: Final = "9" * 5_000
DEEP: Final = "[" * 20_000
DEEP_AND_WHOLE: Final = "[" * 5_000 + "]" * 5_000
HOSTILE_JSON: Final = (
    *("", " ", "{", "nul", "NaN", "Infinity", "-", '"', '"\\ud800"', '"\\u0000"', "\ufeff{}", "\0", "{}" * 2),
    *("null", "true", "0", "-1", "1e999", "1e-999", "9223372036854775808", LONG_NUMBER, '""', '"x"', "[]", "{}"),
    *(DEEP, DEEP_AND_WHOLE, '{"a":' * 3_000, '{"type":"unknown"}', '{"kind":"__import__"}', '{"status":null}'),
    *('{"__class__":"os.system"}', "!!python/object/apply:os.system", "gASVAAAAAAAAAAB9lC4="),
)
"""Texts where JSON of some shape is expected."""

texts: Final = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(codec=None), max_size=20),
    st.sampled_from(
        ["\0", "\ud800", "%", "{}", "a" * 5_000, "../../etc/passwd", "'; DROP TABLE lash_nodes; --", "\x1b[2J"]
    ),
)
scalars: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**63) - 1, 10**400, 1e308, -0.0, float("nan"), float("inf")]),
    st.floats(),
    texts,
)
anything: Final = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
"""JSON and what is nearly JSON: numbers that JSON has not, halves of characters."""


def lash_only(call: Callable[..., T], *arguments: Any, **options: Any) -> T | lash.LashError:  # noqa: ANN401 (hostile)
    """Return the result of the call, or the lash error that it raises; any other error fails the test."""
    try:
        return call(*arguments, **options)
    except lash.LashError as error:
        return told(error)


async def lash_only_from(call: Awaitable[T]) -> T | lash.LashError:
    """The same for an awaitable."""
    try:
        return await call
    except lash.LashError as error:
        return told(error)


def told(error: lash.LashError) -> lash.LashError:
    """Return the error if its message is not empty, and no longer than the hostile value that it may quote."""
    assert 0 < len(str(error)) < 2 * len(DEEP)
    return error


def nested(depth: int, leaf: object = 1) -> object:
    """Return lists in lists."""
    value = leaf
    for _ in range(depth):
        value = [value]
    return value


def places(value: object) -> list[tuple[object, ...]]:
    """Return the path to everything inside a JSON value, the value itself first."""
    found: list[tuple[object, ...]] = [()]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.extend((key, *way) for way in places(inner))
    return found


def replaced(value: Any, way: tuple[Any, ...], other: object) -> Any:  # noqa: ANN401 (JSON)
    """Return the value with something else at the end of the path."""
    if not way:
        return other
    copy = value.copy()
    copy[way[0]] = replaced(value[way[0]], way[1:], other)
    return copy


def loose_json(value: object) -> str:
    """Return the text of a value, NaN and half characters included."""
    return json.dumps(value, ensure_ascii=False)
