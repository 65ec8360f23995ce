"""Any value is stored and read back unchanged, or refused before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lash
from lash.model.process.event import Constant, Pointer, Present, Selector, Template
from lash.plan.process.schema import check_payload, check_schema
from lash.plan.trigger.selector import check_pointer, check_selector, select
from lash.stores.storage import Storage
from tests.factories.process import event, process
from tests.factories.trigger import pressed, trigger
from tests.proof.fuzz.kit import anything, fuzzed, lash_only, lash_only_from, nested, texts

NOTE = lash.EventType(name="note")
pointers = st.one_of(
    texts, st.lists(st.sampled_from(["/", "a", "0", "~0", "~1", "~2", "-1", "9" * 30, ""])).map("".join)
)
selectors: st.SearchStrategy[Selector] = st.recursive(
    st.builds(Pointer, path=pointers) | st.builds(Present, path=pointers) | st.builds(Constant, value=anything),
    lambda inner: st.builds(
        Template,
        template=texts | st.just("{a} {b}"),
        fields=st.dictionaries(texts | st.sampled_from("ab"), inner, max_size=2),
    ),
    max_leaves=4,
)
keywords = st.sampled_from(
    [
        *(
            "type",
            "properties",
            "items",
            "$ref",
            "$defs",
            "enum",
            "pattern",
            "anyOf",
            "allOf",
            "not",
            "minimum",
            "format",
        ),
        *("multipleOf", "uniqueItems", "$schema", "$id", "$dynamicRef", "const", "required", "additionalProperties"),
    ]
)
schema_leaves = st.one_of(
    anything,
    st.sampled_from(
        ["#", "#/$defs/a", "file:///etc/passwd", "http://localhost:1/", "(a+)+$", "a{9999999}", "(?=(", "integer"]
    ),
)
schemas = st.recursive(
    st.dictionaries(keywords, schema_leaves, max_size=3),
    lambda inner: st.dictionaries(
        keywords, inner | st.lists(inner, max_size=2) | st.dictionaries(texts, inner), max_size=3
    ),
    max_leaves=6,
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@fuzzed
@given(selector=selectors, payload=anything)
def test_a_selector_takes_out_or_is_refused(selector: Selector, payload: object) -> None:
    """A wrong pointer or an odd payload raises a lash error, and nothing else."""
    for path in (getattr(selector, "path", None), getattr(selector, "template", None)):
        lash_only(check_pointer, path)
    if (
        not isinstance(lash_only(check_selector, selector), lash.LashError)
        and _is_plain(payload)
        and _is_plain(selector)
    ):
        lash_only(select, selector, payload)


@fuzzed
@given(schema=schemas, payload=plain)
def test_a_schema_checks_or_is_refused(schema: dict[str, object], payload: object) -> None:
    """References are not followed outside, patterns end, and an invalid schema is refused as such."""
    if not _is_plain(schema):
        return
    if not isinstance(lash_only(check_schema, "schema", schema), lash.LashError):
        lash_only(check_payload, "payload", schema, payload)


def _is_plain(value: object) -> bool:
    """Return whether lash would store the value: only such a value reaches the plans."""
    from lash.base.codec import encode

    return not isinstance(lash_only(encode, value, type(value), "value"), lash.LashError)


def writers(storage: Storage, value: object) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
    """Return ways to store a value."""
    yield "event", lambda: storage.events.append("p", event("note", value))  # type: ignore[arg-type]
    yield "signal", lambda: storage.events.signal("p", "x", signal_id="1", payload=value)  # type: ignore[arg-type]
    yield "emit", lambda: storage.occurrences.emit(pressed("1", value))  # type: ignore[arg-type]
    yield "source", lambda: storage.triggers.register(trigger(source=value))  # type: ignore[arg-type]
    yield "schema", lambda: storage.triggers.register(trigger("s", payload_schema=value))  # type: ignore[arg-type]
    yield "success", lambda: storage.processes.complete("q", lash.Success(value=value))  # type: ignore[arg-type]
    yield "session", lambda: storage.sessions.create(value)  # type: ignore[arg-type]
    yield "process", lambda: storage.processes.get(value)  # type: ignore[arg-type]
    yield "cursor", lambda: storage.sessions.list(cursor=value)  # type: ignore[arg-type]
    yield "wait", lambda: storage.waits.open(value)  # type: ignore[arg-type]


@fuzzed
@given(value=anything)
@pytest.mark.parametrize("backend_name", ["memory"], indirect=True)
def test_a_value_is_stored_as_it_is_or_refused(value: object, backend_name: str) -> None:
    """Through the public API, on a storage in memory; the event is read back unchanged."""
    asyncio.run(_store(value))


@pytest.mark.parametrize("depth", [99, 100, 101, 900, 5_000, 100_000])
@pytest.mark.parametrize("backend_name", ["memory"], indirect=True)
def test_no_depth_of_nesting_breaks_anything(depth: int, backend_name: str) -> None:
    """Deep values are refused on entry, before any library descends into them."""
    asyncio.run(_store(nested(depth)))


async def _store(value: object) -> None:
    async with await lash.open("sqlite://") as storage:
        for process_id in "pq":
            await storage.processes.register(process(process_id, NOTE, lash.EventType(name="signal.x")))
        for name, call in writers(storage, value):
            outcome = await lash_only_from(call())
            if name == "event" and not isinstance(outcome, lash.LashError):
                (found,) = await storage.events.recent("p", 1)
                assert found.payload == value
