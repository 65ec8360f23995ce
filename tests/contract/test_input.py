"""The contract of input that cannot be stored: refused with a reason, before anything is written."""

from __future__ import annotations

import datetime
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import pytest

from lash.base.limits import MAX_INTEGER
from lash.errors import InvalidInput, LashError, SessionBindingMismatch
from lash.model.lease import LeaseFence, LocalProcess, session_resource
from lash.model.session.checkpoint import TurnState
from lash.model.session.commit import Append, Commit, ReplaceFull, Unchanged
from lash.model.session.frame import AgentFrameAssignment, ModelLimits, ModelSpec, SessionPolicy
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import ActivePath, ChildRelation, SessionConfig, SessionMeta
from lash.model.session.usage import TokenUsage, UsageEntry
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.state import loaded, observe
from tests.factories.session import (
    MOMENT,
    acquired,
    append,
    commit,
    created,
    draft,
    frame,
    node,
    owner,
    plugin_node,
    spent,
)

LONG: Final = "x" * 256
SURROGATE: Final = "lone \ud800"
BAD_IDS: Final[dict[str, Any]] = {
    "empty": "",
    "blank": " \t\n",
    "too long": LONG,
    "NUL": "a\0b",
    "lone surrogate": SURROGATE,
    "number": 5,
    "bytes": b"id",
    "None": None,
    "tuple": ("s",),
}
"""Values that are not valid as ids."""


def _nested(depth: int) -> object:
    value: object = "bottom"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


BAD_JSON: Final[dict[str, Any]] = {
    "NaN": math.nan,
    "infinity": [math.inf],
    "minus infinity": {"k": -math.inf},
    "huge": 2**64,
    "just too large": 2**63,
    "just too small": -(2**63) - 1,
    "deep": _nested(101),
    "very deep": _nested(100_000),
    "number as key": {1: "x"},
    "None as key": {None: "x"},
    "bytes": b"bytes",
    "set": {1, 2},
    "object": object(),
    "complex": 1j,
    "time": MOMENT,
    "lone surrogate": [SURROGATE],
    "surrogate in a key": {SURROGATE: 1},
}
"""Values that JSON does not allow."""


def _usage(**counters: Any) -> UsageEntry:  # noqa: ANN401 - wrong types are the point
    return UsageEntry(source="turn", model="m", usage=TokenUsage(**counters))


def _changed(value: msgspec.Struct, **changes: Any) -> Any:  # noqa: ANN401 - wrong types are the point
    return msgspec.structs.replace(value, **changes)


BAD_COMMITS: Final[dict[str, dict[str, Any]]] = {
    "revision below zero": {"expected_revision": -1},
    "revision exhausted": {"expected_revision": MAX_INTEGER},
    "revision too large": {"expected_revision": 2**64},
    "revision as text": {"expected_revision": "1"},
    "revision as float": {"expected_revision": 1.0},
    "revision as bool": {"expected_revision": True},
    "revision missing": {"expected_revision": None},
    "fence of another type": {"fence": "token"},
    "fence with a bad number": {
        "fence": LeaseFence(resource=session_resource("s"), owner_id="o", incarnation_id="1", token="t", fencing=-1)
    },
    "release of another type": {"release": ("s", "t")},
    "graph missing": {"graph": None},
    "graph of another type": {"graph": [node("b")]},
    "nodes of another type": {"graph": Append(nodes="ab")},  # type: ignore[arg-type]
    "node of another type": {"graph": append(node("b", "a"), {"node_id": "c"})},  # type: ignore[arg-type]
    "node without an entry": {"graph": append(_changed(node("b", "a"), entry=None))},
    "entry of another type": {"graph": append(_changed(node("b", "a"), entry={"kind": "plugin"}))},
    "time without a zone": {"graph": append(_changed(node("b"), timestamp=datetime.datetime(2024, 1, 1)))},  # noqa: DTZ001
    "time as text": {"graph": append(_changed(node("b"), timestamp="2024-01-01T00:00:00Z"))},
    "surrogate in a message": {"graph": append(node("b", "a", SURROGATE))},
    "node count below zero": {"graph": ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=-1)},
    "node count as text": {"graph": ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count="1")},  # type: ignore[arg-type]
    "leaf of another type": {"graph": Unchanged(leaf_node_id=7)},  # type: ignore[arg-type]
    "frames of another type": {"frames": "f"},
    "frame of another type": {"frames": ("f",)},
    "two frames of one id": {"frames": (frame("f"), frame("f"))},
    "current frame unknown": {"frames": (frame("f"),), "current_frame_id": "g"},
    "frame with bytes and ref": {"frames": (_changed(frame("f", state=b"x"), execution_state_ref="0" * 64),)},
    "frame with a bad ref": {"frames": (_changed(frame("f"), execution_state_ref="../etc"),)},
    "frame without a time": {"frames": (_changed(frame("f"), created_at=None),)},
    "frame options not JSON": {"frames": (_changed(frame("f"), protocol_turn_options={"k": math.nan}),)},
    "frame policy not JSON": {
        "frames": (_changed(frame("f"), assignment=AgentFrameAssignment(policy=SessionPolicy(prompt={"k": {1}}))),)
    },
    "checkpoint missing": {"checkpoint": None},
    "components of another type": {"checkpoint": _changed(draft(), components=[b"x"])},
    "component as text": {"checkpoint": draft(0, {"k": "plain text"})},  # type: ignore[dict-item]
    "component of another type": {"checkpoint": draft(0, {"k": 5})},  # type: ignore[dict-item]
    "component as bytearray": {"checkpoint": draft(0, {"k": bytearray(b"x")})},  # type: ignore[dict-item]
    "component with an uppercase ref": {"checkpoint": draft(0, {"k": "A" * 64})},  # type: ignore[dict-item]
    "component key reserved": {"checkpoint": draft(0, {"frame:f": b"x"})},
    "turn index below zero": {"checkpoint": draft(-1)},
    "turn index too large": {"checkpoint": draft(2**64)},
    "turn state of another type": {"checkpoint": _changed(draft(), turn_state={"turn_index": 1})},
    "turn options not JSON": {"checkpoint": _changed(draft(), turn_state=TurnState(protocol_turn_options={"k": b"x"}))},
    "snapshot revision below zero": {"checkpoint": _changed(draft(), plugin_snapshot_revision=-1)},
    "snapshot revision too large": {"checkpoint": _changed(draft(), plugin_snapshot_revision=2**63)},
    "usage of another type": {"usage": {"turn": 5}},
    "usage entry of another type": {"usage": (("turn", "m", 5),)},
    "usage below zero": {"usage": (_usage(input_tokens=-1),)},
    "usage too large": {"usage": (_usage(output_tokens=2**63),)},
    "usage with an oversize sum": {"usage": (_usage(input_tokens=MAX_INTEGER), _usage(input_tokens=1))},
    "usage as float": {"usage": (_usage(cached_input_tokens=1.5),)},
    "usage as bool": {"usage": (_usage(reasoning_tokens=True),)},
    "usage source with NUL": {"usage": (spent(1, source="a\0b"),)},
    "usage source too long": {"usage": (spent(1, source=LONG),)},
    "usage model with a surrogate": {"usage": (spent(1, model=SURROGATE),)},
    "usage model missing": {"usage": (spent(1, model=None),)},  # type: ignore[arg-type]
    "config missing": {"config": None},
    "config of another type": {"config": {"provider_id": "p"}},
    "config with a surrogate": {"config": SessionConfig(provider_id=SURROGATE)},
    "config without a window": {"config": SessionConfig(model=ModelSpec(limits=ModelLimits(context_window_tokens=0)))},
}
"""Changes that make a commit impossible to store, whatever the session holds."""

BAD_META: Final[dict[str, dict[str, Any]]] = {
    "name missing": {"name": None},
    "name too long": {"name": "x" * 5_000},
    "name with NUL": {"name": "a\0b"},
    "name with a surrogate": {"name": SURROGATE},
    "model too long": {"model": LONG},
    "model of another type": {"model": 5},
    "directory with NUL": {"cwd": "/tmp/\0"},
    "directory of another type": {"cwd": b"/tmp"},
    "relation missing": {"relation": None},
    "relation of another type": {"relation": {"kind": "root"}},
    "relation with a surrogate": {"relation": ChildRelation(parent_session_id=SURROGATE)},
    "relation without a parent": {"relation": ChildRelation(parent_session_id=None)},  # type: ignore[arg-type]
}
"""Metadata that cannot be stored."""

BadCall: TypeAlias = Callable[[Storage], Awaitable[object]]


class CallWith(Protocol):
    """A call that needs one value."""

    def __call__(self, storage: Storage, value: Any) -> Awaitable[object]: ...  # noqa: ANN401 - wrong types are the point


BY_ID: Final[dict[str, CallWith]] = {
    "create": lambda storage, value: storage.sessions.create(value),
    "open": lambda storage, value: storage.sessions.open(value),
    "delete": lambda storage, value: storage.sessions.delete(value),
    "claim": lambda storage, value: storage.leases.claim(value, owner("w"), ttl_ms=10),
    "holder": lambda storage, value: storage.leases.holder(value),
    "owner": lambda storage, value: storage.leases.claim("s", owner(value), ttl_ms=10),
    "incarnation": lambda storage, value: storage.leases.claim("s", owner("w", value), ttl_ms=10),
    "node": lambda storage, value: storage.session("s").node(value),
    "tombstone": lambda storage, value: storage.session("s").tombstone([value]),
    "commit": lambda storage, value: storage.session("s").commit(commit(1, session_id=value)),
    "new node": lambda storage, value: storage.session("s").commit(commit(1, node(value, "a", "text"))),
    "component": lambda storage, value: storage.session("s").commit(commit(1, checkpoint=draft(0, {value: b"x"}))),
    "frame": lambda storage, value: storage.session("s").commit(commit(1, frames=(frame(value),))),
}
"""Calls that require an id."""

BY_OPTIONAL_ID: Final[dict[str, CallWith]] = {
    "turn": lambda storage, value: storage.session("s").commit(commit(1, turn_id=value)),
    "parent": lambda storage, value: storage.session("s").commit(commit(1, node("b", value))),
    "leaf": lambda storage, value: storage.session("s").commit(commit(1, graph=Unchanged(leaf_node_id=value))),
    "leaf of an append": lambda storage, value: storage.session("s").commit(
        commit(1, graph=append(node("b", "a"), leaf=value))
    ),
    "leaf to read": lambda storage, value: storage.session("s").load(ActivePath(leaf_node_id=value)),
    "current frame": lambda storage, value: storage.session("s").commit(commit(1, current_frame_id=value)),
}
"""Calls that take an id or None."""

BAD_CALLS: Final[dict[str, BadCall]] = {
    "page of zero": lambda storage: storage.sessions.list(limit=0),
    "page too large": lambda storage: storage.sessions.list(limit=1_001),
    "page size as text": lambda storage: storage.sessions.list(limit="5"),  # type: ignore[arg-type]
    "page size as bool": lambda storage: storage.sessions.list(limit=True),
    "cursor of another type": lambda storage: storage.sessions.list(cursor=5),  # type: ignore[arg-type]
    "scope missing": lambda storage: storage.session("s").load(None),  # type: ignore[arg-type]
    "scope as text": lambda storage: storage.session("s").load("full"),  # type: ignore[arg-type]
    "last none": lambda storage: storage.session("s").load(ActivePath(last=0)),
    "last too large": lambda storage: storage.session("s").load(ActivePath(last=2**63)),
    "last as text": lambda storage: storage.session("s").load(ActivePath(last="5")),  # type: ignore[arg-type]
    "checkpoint below zero": lambda storage: storage.session("s").checkpoint(-1),
    "checkpoint too large": lambda storage: storage.session("s").checkpoint(2**63),
    "checkpoint as text": lambda storage: storage.session("s").checkpoint("1"),  # type: ignore[arg-type]
    "ref too short": lambda storage: storage.session("s").blob("abc"),  # type: ignore[arg-type]
    "ref not hex": lambda storage: storage.session("s").blob("g" * 64),  # type: ignore[arg-type]
    "ref of another type": lambda storage: storage.session("s").blob(b"0" * 64),  # type: ignore[arg-type]
    "ids as one text": lambda storage: storage.session("s").tombstone("abc"),
    "ids missing": lambda storage: storage.session("s").tombstone(None),  # type: ignore[arg-type]
    "commit missing": lambda storage: storage.session("s").commit(None),  # type: ignore[arg-type]
    "commit as a mapping": lambda storage: storage.session("s").commit({"session_id": "s"}),  # type: ignore[arg-type]
    "meta missing": lambda storage: storage.session("s").save_meta(None),  # type: ignore[arg-type]
    "owner missing": lambda storage: storage.leases.claim("s", None, ttl_ms=10),  # type: ignore[arg-type]
    "ttl below zero": lambda storage: storage.leases.claim("s", owner("w"), ttl_ms=-1),
    "ttl of days": lambda storage: storage.leases.claim("s", owner("w"), ttl_ms=86_400_001),
    "ttl huge": lambda storage: storage.leases.claim("s", owner("w"), ttl_ms=2**64),
    "ttl as float": lambda storage: storage.leases.claim("s", owner("w"), ttl_ms=1.5),  # type: ignore[arg-type]
    "observed missing": lambda storage: storage.leases.reclaim("s", owner("w"), observed=None, ttl_ms=1),  # type: ignore[arg-type]
    "fence missing": lambda storage: storage.leases.renew(None, ttl_ms=1),  # type: ignore[arg-type]
    "fence as text": lambda storage: storage.leases.release("token"),  # type: ignore[arg-type]
    "process with a surrogate": lambda storage: storage.leases.claim(
        "s", owner("w", process=LocalProcess(host_id=SURROGATE, boot_id="b", pid=1, process_start="1")), ttl_ms=10
    ),
    "process of another type": lambda storage: storage.leases.claim("s", owner("w", process="me"), ttl_ms=10),  # type: ignore[arg-type]
}
"""Other calls that are invalid in every state of the storage."""


class TestInput:
    """Every bad value raises InvalidInput and leaves the state unchanged."""

    @pytest.mark.parametrize("call", BY_ID)
    async def test_a_bad_id_is_refused(self, harness: Harness, call: str) -> None:
        """An invalid id is refused wherever an id is required."""
        await _refused(harness, {name: partial(BY_ID[call], value=value) for name, value in BAD_IDS.items()})

    @pytest.mark.parametrize("call", BY_OPTIONAL_ID)
    async def test_a_bad_optional_id_is_refused(self, harness: Harness, call: str) -> None:
        """An invalid id is refused wherever an id is optional."""
        given = {name: value for name, value in BAD_IDS.items() if value is not None}
        await _refused(harness, {name: partial(BY_OPTIONAL_ID[call], value=value) for name, value in given.items()})

    async def test_a_value_that_json_cannot_carry_is_refused(self, harness: Harness) -> None:
        """A value that could not be read back unchanged is refused."""
        nodes = {name: plugin_node("b", value, "a") for name, value in BAD_JSON.items()}
        await _refused(harness, {name: partial(_commit, value=commit(1, bad)) for name, bad in nodes.items()})

    async def test_a_bad_commit_is_refused(self, harness: Harness) -> None:
        """Wrong types, numbers out of range and contradictions inside a commit are refused."""
        good = commit(1, node("b", "a"))
        commits = {name: _changed(good, **changes) for name, changes in BAD_COMMITS.items()}
        await _refused(harness, {name: partial(_commit, value=bad) for name, bad in commits.items()})

    async def test_bad_metadata_is_not_saved(self, harness: Harness) -> None:
        """Saving refuses metadata that cannot be stored."""
        good = SessionMeta(session_id="s", name="n", created_at_ms=0)
        metas = {name: _changed(good, **changes) for name, changes in BAD_META.items()}
        await _refused(harness, {name: partial(_save_meta, value=bad) for name, bad in metas.items()})

    async def test_no_session_is_created_with_bad_metadata(self, harness: Harness) -> None:
        """Creating a session with metadata that cannot be stored is refused, and creates nothing."""
        given = {name: changes for name, changes in BAD_META.items() if changes != {"name": None}}
        await _refused(harness, {name: partial(_create, value=changes) for name, changes in given.items()})

    async def test_a_bad_call_is_refused(self, harness: Harness) -> None:
        """Arguments of the wrong type or range are refused."""
        await _refused(harness, BAD_CALLS)

    async def test_a_handle_needs_an_id(self, harness: Harness) -> None:
        """A handle on an invalid id is refused when it is made."""
        storage = await harness.open()
        for value in BAD_IDS.values():
            with pytest.raises(InvalidInput):
                storage.session(value)

    async def test_metadata_of_another_session_is_refused(self, harness: Harness) -> None:
        """Metadata that names another session is a binding mismatch."""
        foreign = SessionMeta(session_id="other", name="n", created_at_ms=0)
        await _refused(harness, {"foreign": partial(_save_meta, value=foreign)}, SessionBindingMismatch)

    async def test_a_message_with_a_foreign_role_is_refused(self, harness: Harness) -> None:
        """A role that could not be read back is refused."""
        message = Message(id="m", role="robot")  # type: ignore[arg-type]
        bad = Node(node_id="b", parent_node_id="a", timestamp=MOMENT, entry=MessageEntry(message=message))
        await _refused(harness, {"robot": partial(_commit, value=commit(1, bad))})

    async def test_a_ledger_that_would_overflow_is_refused(self, harness: Harness) -> None:
        """A total at the end of the range accepts no more, and what is stored stays exact."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, usage=(spent(MAX_INTEGER - 1),)))
        await session.commit(commit(1, usage=(spent(1),)))
        before = await observe(storage)
        for turn_id in (None, "t"):
            with pytest.raises(InvalidInput):
                await session.commit(commit(2, node("a"), usage=(spent(1),), turn_id=turn_id))
        assert await observe(storage) == before
        assert (await loaded(storage)).usage == (spent(MAX_INTEGER),)

    async def test_what_is_unusual_but_storable_is_stored(self, harness: Harness) -> None:
        """The longest id, odd characters, NUL inside text, extreme numbers and deep JSON come back unchanged."""
        storage = await harness.open()
        for number, session_id in enumerate(
            ["x" * 255, "a/b\\c:d?e#f%", "\N{PILE OF POO}\u202e é", "'; --", " s ", "NULL"]
        ):
            session = await created(storage, session_id)
            values: list[object] = ["\0", "\uffff", MAX_INTEGER, -(2**63), 5e-324, 1.7e308, -0.0, _nested(80), {"": ""}]
            nodes = (plugin_node(session_id, values), node(f"m{number}", session_id, "\0NUL\0", role=Role.ASSISTANT))
            await session.commit(commit(0, *nodes, session_id=session_id, turn_id=session_id))
            assert (await loaded(await harness.open(), session_id)).graph.nodes == nodes
            assert (
                acquired(await storage.leases.claim(session_id, owner(session_id), ttl_ms=5)).resource.id == session_id
            )
        listed = (await storage.sessions.list()).sessions
        assert [line.meta.session_id for line in listed][-1] == "x" * 255


async def _commit(storage: Storage, value: Commit) -> object:
    return await storage.session("s").commit(value)


async def _save_meta(storage: Storage, value: SessionMeta) -> None:
    await storage.session("s").save_meta(value)


async def _create(storage: Storage, value: dict[str, Any]) -> object:
    return await storage.sessions.create("new", **value)


async def _refused(harness: Harness, calls: Mapping[str, BadCall], error: type[LashError] = InvalidInput) -> None:
    """Assert that every call raises this error with a message, and that nothing changed."""
    storage = await harness.open()
    session = await created(storage)
    await session.commit(commit(0, node("a"), turn_id="first", usage=(spent(1),), checkpoint=draft(1, {"k": b"x"})))
    before = await observe(storage)
    outcomes = {name: await _outcome(storage, call) for name, call in calls.items()}
    assert outcomes == dict.fromkeys(calls, f"{error.__name__} with a message")
    assert await observe(storage) == before


async def _outcome(storage: Storage, call: BadCall) -> str:
    try:
        return f"accepted: {await call(storage)!r:.80}"
    except LashError as error:
        return f"{type(error).__name__} {'with' if str(error) else 'without'} a message"
    except Exception as error:  # noqa: BLE001 - an error that is not lash's own is what the test is to show
        return f"a foreign error: {error!r:.80}"
