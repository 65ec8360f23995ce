"""Rules of trigger subscriptions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lash.errors import CorruptData, InvalidInput, TriggerConflict, TriggerNotFound
from lash.model.causal import TriggerOccurrenceCause
from lash.model.process.event import EventType
from lash.model.process.process import (
    AgentScope,
    EngineInput,
    HostOriginator,
    ProcessIdentity,
    Provenance,
    Recovery,
    Registration,
    SessionOriginator,
    ToolCallInput,
)
from lash.model.trigger.trigger import (
    DeletedTrigger,
    EventPointer,
    FixedInput,
    TriggerDraft,
    TriggerFilter,
    WholeEvent,
)
from lash.plan.trigger.list import (
    TriggerColumns,
    check_trigger_filter,
    decode_trigger_cursor,
    decode_trigger_page,
)
from lash.plan.trigger.receipt import ReceiptRow, plan_operation
from lash.plan.trigger.trigger import (
    ChangeTrigger,
    DropTrigger,
    InsertTrigger,
    KeepTrigger,
    TriggerName,
    TriggerRow,
    check_name,
    check_revision,
    check_source_type,
    decode_subscription,
    default_source_key,
    deleted_trigger,
    encode_draft,
    owner_column,
    owner_text,
    plan_delete,
    plan_register,
    plan_switch,
    plan_update,
    registration_of,
)
from tests.rules.kit import sha256

HOST = HostOriginator()
ENGINE = EngineInput(kind="work", payload={})
NAME = TriggerName(owner_session_id="", key="k")


def draft(**fields: Any) -> TriggerDraft:  # noqa: ANN401 - the fields of a definition
    values: dict[str, Any] = {
        "owner": HOST,
        "key": "k",
        "source_type": "t",
        "source_key": "s",
        "target": ENGINE,
        "environment_ref": "e",
    }
    return TriggerDraft(**(values | fields))


def session(session_id: str = "s", frame: str | None = None) -> SessionOriginator:
    return SessionOriginator(scope=AgentScope(session_id=session_id, agent_frame_id=frame))


def row(*, revision: int = 1, enabled: bool = True, definition: str | None = None) -> TriggerRow:
    encoded = encode_draft(draft())
    stored = encoded.body if definition is None else definition
    return TriggerRow(7, "id", "", "k", revision, encoded.fingerprint, stored, enabled, 100, 100)


def test_golden_source_key() -> None:
    """The default key of a source is this text on every machine and in every version."""
    content = b'lash.trigger.source.v1\0["ui.button.pressed",{"a":[1,null],"b":"\xc3\xa4"}]'
    assert default_source_key("ui.button.pressed", {"b": "ä", "a": [1, None]}) == (
        "source:ui.button.pressed:v1:" + sha256(content)
    )
    assert default_source_key("ui.button.pressed") == (
        "source:ui.button.pressed:v1:" + sha256(b'lash.trigger.source.v1\0["ui.button.pressed",{}]')
    )


def test_sources_that_have_no_key() -> None:
    """A blank type, or a description that is not JSON, is refused."""
    with pytest.raises(InvalidInput, match="source_type is blank"):
        default_source_key(" ")
    with pytest.raises(InvalidInput, match="the description"):
        default_source_key("t", {"a": object()})


def test_golden_fingerprint() -> None:
    """The fingerprint covers these bytes; the frame of the owner is not among them."""
    content = (
        b"lash.trigger.definition.v1\0"
        b'{"environment_ref":"e","identity":{"kind":"work"},"key":"k","owner":"s","source_key":"s","source_type":"t",'
        b'"target":{"kind":"work","payload":{},"type":"engine"}}'
    )
    assert encode_draft(draft(owner=session())).fingerprint == sha256(content)
    assert encode_draft(draft(owner=session(frame="f"))).fingerprint == sha256(content)
    assert encode_draft(draft(owner=HOST)).fingerprint == sha256(content.replace(b'"owner":"s"', b'"owner":""'))


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "other"},
        {"owner": session("x")},
        {"source_type": "x"},
        {"source_key": "x"},
        {"source": {}},
        {"target": EngineInput(kind="x", payload={})},
        {"environment_ref": "x"},
        {"payload_schema": {"type": "string"}},
        {"identity": ProcessIdentity(kind="x")},
        {"label": "x"},
        {"input_template": {"x": WholeEvent()}},
        {"wake_session_id": "x"},
        {"recovery": "owner_bound"},
    ],
)
def test_every_part_counts(fields: dict[str, Any]) -> None:
    """Definitions that differ in any field have different fingerprints."""
    assert encode_draft(draft(**fields)).fingerprint != encode_draft(draft()).fingerprint


def test_what_is_said_twice_counts_once() -> None:
    """The label is stored in the identity, and the default identity has the engine's kind."""
    plain = encode_draft(draft(label="l"))
    assert plain.draft.identity == ProcessIdentity(kind="work", label="l")
    assert plain.draft.label is None
    assert encode_draft(draft(identity=ProcessIdentity(kind="work", label="l"))).fingerprint == plain.fingerprint
    both = draft(identity=ProcessIdentity(kind="work", label="l"), label="l")
    assert encode_draft(both).fingerprint == plain.fingerprint


def test_the_columns_of_a_definition() -> None:
    """Lists and matching use these columns."""
    encoded = encode_draft(draft(owner=session(), identity=ProcessIdentity(kind="k", definition={"b": 1, "a": 2})))
    assert encoded.name == TriggerName(owner_session_id="s", key="k")
    assert encoded.definition_hash == sha256(b'{"a":2,"b":1}')
    assert encode_draft(draft()).definition_hash is None
    assert msgspec.json.decode(encoded.body, type=TriggerDraft) == encoded.draft


@pytest.mark.parametrize(
    ("fields", "saying"),
    [
        ({"target": ToolCallInput(call_id="c", tool_id="t", tool_name="n")}, "ToolCallInput"),
        ({"target": EngineInput(kind="w", payload=[])}, "expected an object as the payload of the target, got list"),
        ({"label": "a", "identity": ProcessIdentity(kind="k", label="b")}, "expected label 'b'"),
        ({"input_template": {"x": EventPointer(path="x")}}, "JSON pointer"),
        ({"input_template": {" ": FixedInput(value=1)}}, "blank"),
        ({"source_type": " "}, "source_type is blank"),
        ({"source_key": " "}, "source_key is blank"),
        ({"payload_schema": {"type": "wat"}}, "payload_schema: the JSON schema cannot be used"),
        ({"environment_ref": ""}, "cannot start a process"),
        ({"source": "x" * 262_144}, "at most 262,144"),
        ({"owner": None}, "owner"),
    ],
)
def test_bad_definitions(fields: dict[str, Any], saying: str) -> None:
    """A definition that could not start a process is refused with the field in the message."""
    with pytest.raises(InvalidInput, match=saying):
        encode_draft(draft(**fields))


def test_the_largest_definition() -> None:
    """A definition may have 262,144 characters of JSON, and no more."""
    rest = (
        '{"owner":{"type":"host"},"key":"k","source_type":"t","source_key":"s","source":"",'
        '"target":{"type":"engine","kind":"work","payload":{}},"environment_ref":"e","identity":{"kind":"work"}}'
    )
    room = 262_144 - len(rest)
    assert len(encode_draft(draft(source="x" * room)).body) == 262_144
    with pytest.raises(InvalidInput, match="has 262,145 characters"):
        encode_draft(draft(source="x" * (room + 1)))


def test_fixed_inputs_must_fit_into_a_process() -> None:
    """A fixed input too deep for a process is refused in the definition."""
    deep: Any = 1
    for _ in range(97):
        deep = [deep]
    with pytest.raises(InvalidInput, match=r"cannot start a process: .*nested"):
        encode_draft(draft(input_template={"x": FixedInput(value=deep)}))


def test_the_process_that_a_subscription_starts() -> None:
    """A started process has the fields of the definition, its originator and its cause."""
    definition = encode_draft(
        draft(
            owner=session(frame="f"),
            target=EngineInput(kind="work", payload={"m": 1, "args": "old"}),
            identity=ProcessIdentity(kind="job", label="l"),
            recovery="owner_bound",
            event_types=(EventType(name="note"),),
            wake_session_id="w",
        )
    ).draft
    started = registration_of(definition, process_id="p", occurrence_id="o", inputs={"x": 1})
    assert started.registration == Registration(
        process_id="p",
        input=EngineInput(kind="work", payload={"m": 1, "args": {"x": 1}}),
        recovery=Recovery.OWNER_BOUND,
        identity=ProcessIdentity(kind="job", label="l"),
        event_types=(EventType(name="note"),),
        provenance=Provenance(originator=session(frame="f"), caused_by=TriggerOccurrenceCause(occurrence_id="o")),
        environment_ref="e",
        wake_session_id="w",
    )


def test_what_is_no_definition() -> None:
    """Arguments of another type are refused."""
    with pytest.raises(InvalidInput, match="TriggerDraft"):
        encode_draft(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="128"):
        check_source_type("x" * 129)


def test_owners() -> None:
    """A session owner is its id; the host is empty."""
    assert owner_column(HOST) == ""
    assert owner_column(session("s", "f")) == "s"
    assert owner_text("") == "the host"
    assert owner_text("s") == "session 's'"
    assert check_name(session(), "k") == TriggerName(owner_session_id="s", key="k")
    assert check_name(session(), "k").required_session_id == "s"
    assert NAME.required_session_id is None
    with pytest.raises(InvalidInput, match="session_id"):
        owner_column(session(""))
    with pytest.raises(InvalidInput, match="expected a HostOriginator or a SessionOriginator as owner, got str"):
        owner_column("s")


def test_registering() -> None:
    """A new name starts at 1, a deleted one above its last revision; an equal definition is kept."""
    encoded = encode_draft(draft())
    first = InsertTrigger(draft=encoded, subscription_id="i", revision=1)
    assert plan_register(encoded, None, None, subscription_id="i") == first
    assert plan_register(encoded, None, 4, subscription_id="i") == msgspec.structs.replace(first, revision=5)
    assert plan_register(encoded, row(), None, subscription_id="i") == KeepTrigger(row=row())
    with pytest.raises(TriggerConflict, match="revision 3"):
        plan_register(encode_draft(draft(label="x")), row(revision=3), None, subscription_id="i")


def test_a_new_row() -> None:
    """The returned row is the written one."""
    made = InsertTrigger(draft=encode_draft(draft()), subscription_id="i", revision=5).row(7, now_ms=9)
    assert made == msgspec.structs.replace(row(revision=5), subscription_id="i", created_at_ms=9, updated_at_ms=9)
    subscription = decode_subscription(made)
    assert (subscription.key, subscription.owner, subscription.revision, subscription.enabled) == ("k", HOST, 5, True)


def test_updating() -> None:
    """An update writes the next revision; an equal definition is kept unless the stored one is unreadable."""
    encoded = encode_draft(draft(label="x"))
    decision = plan_update(encoded, row(revision=2, enabled=False), revision=2, now_ms=200)
    expected = TriggerRow(7, "id", "", "k", 3, encoded.fingerprint, encoded.body, False, 100, 200)
    assert decision == ChangeTrigger(row=expected, draft=encoded)
    same = encode_draft(draft())
    assert plan_update(same, row(), revision=1, now_ms=200) == KeepTrigger(row=row())
    repaired = plan_update(same, row(definition="{"), revision=1, now_ms=200)
    assert isinstance(repaired, ChangeTrigger)
    assert (repaired.row.revision, repaired.row.definition) == (2, same.body)


def test_switching() -> None:
    """Switching writes the next revision, unless nothing changes."""
    decision = plan_switch(NAME, row(), revision=1, enabled=False, now_ms=200)
    assert decision == ChangeTrigger(row=msgspec.structs.replace(row(revision=2, enabled=False), updated_at_ms=200))
    assert plan_switch(NAME, row(), revision=1, enabled=True, now_ms=200) == KeepTrigger(row=row())


def test_deleting() -> None:
    """The answer to a deletion has the id and the last revision; the definition need not be readable."""
    damaged = row(revision=3, definition="{")
    assert plan_delete(NAME, damaged, revision=3) == DropTrigger(row=damaged)
    assert deleted_trigger(damaged) == DeletedTrigger(subscription_id="id", revision=3)


def test_the_wrong_revision() -> None:
    """A conflict names both revisions; a missing subscription raises TriggerNotFound."""
    with pytest.raises(TriggerConflict, match=r"'k' of the host is at revision 3, .* expected 2"):
        plan_delete(NAME, row(revision=3), revision=2)
    with pytest.raises(TriggerNotFound, match="the host has no trigger subscription 'k'"):
        plan_delete(NAME, None, revision=2)
    assert check_revision(1) == 1
    with pytest.raises(InvalidInput):
        check_revision(0)


def test_damage_is_told() -> None:
    """An unreadable definition is CorruptData with its name, and is listed as damaged on a page."""
    with pytest.raises(CorruptData, match=r"'k' \(id\) of the host"):
        decode_subscription(row(definition="{"))
    page = decode_trigger_page([row(), row(definition="[]"), row()], 2)
    assert (len(page.subscriptions), page.damaged) == (1, ("id",))
    assert decode_trigger_cursor(page.next_cursor) == 7
    assert decode_trigger_page([row()], 1).next_cursor is None


@pytest.mark.parametrize("cursor", ["", "x", "cDE6Mw==", "dDE6LTE=", "dDE6eA=="])
def test_bad_cursors(cursor: str) -> None:
    """Only a cursor that a page returned is accepted."""
    with pytest.raises(InvalidInput):
        decode_trigger_cursor(cursor)


def test_a_page_goes_on_behind_its_last_row() -> None:
    """The cursor of a page is the key of its last row, which may be any number from 0 up."""
    rows = [msgspec.structs.replace(row(), subscription_key=number) for number in (9, 8, 7, 6)]
    assert decode_trigger_cursor(decode_trigger_page(rows, 3).next_cursor) == 7
    assert decode_trigger_cursor("dDE6MA==") == 0


def test_no_cursor_is_the_beginning() -> None:
    """Without a cursor a list starts with the newest subscription."""
    assert decode_trigger_cursor(None) is None


def test_the_columns_of_a_filter() -> None:
    """Owners are filtered by session id, definitions by hash; a filter for no definition is a filter."""
    none = TriggerColumns(
        definition_hash=None, owner_session_id=None, key=None, source_type=None, source_key=None, enabled=None
    )
    assert check_trigger_filter(TriggerFilter()) == none
    wanted = TriggerFilter(key="k", source_type="t", source_key="s", enabled=False, definition=[1], session_id="x")
    assert check_trigger_filter(wanted) == TriggerColumns(
        definition_hash=sha256(b"[1]"),
        owner_session_id="x",
        key="k",
        source_type="t",
        source_key="s",
        enabled=False,
    )
    owners = (TriggerFilter(owner=HOST), TriggerFilter(owner=session("s", "f"), session_id="s"))
    assert [check_trigger_filter(each).owner_session_id for each in owners] == ["", "s"]
    assert check_trigger_filter(TriggerFilter(definition=None)).definition_hash == "none"


@pytest.mark.parametrize(
    ("wanted", "saying"),
    [
        (None, "expected a TriggerFilter, got NoneType"),
        (TriggerFilter(enabled=1), "enabled: expected true, false or None, got 1"),  # type: ignore[arg-type]
        (TriggerFilter(owner="x"), "expected a HostOriginator or a SessionOriginator as owner, got str"),  # type: ignore[arg-type]
        (TriggerFilter(session_id=""), "session_id is blank"),
        (TriggerFilter(key=""), "key is blank"),
        (TriggerFilter(source_type=""), "source_type is blank"),
        (TriggerFilter(source_key=""), "source_key is blank"),
        (TriggerFilter(definition=float("inf")), "filter.definition"),
        (TriggerFilter(owner=HOST, session_id="s"), "owner and session_id 's' are two different owners"),
    ],
)
def test_bad_filters(wanted: object, saying: str) -> None:
    """An invalid filter is refused with the reason."""
    with pytest.raises(InvalidInput, match=saying):
        check_trigger_filter(wanted)


def test_receipts() -> None:
    """The same request gets the first answer; another request under the id raises TriggerConflict."""
    first = plan_operation("delete", NAME, DeletedTrigger, operation_id="o", revision=3)
    assert first.request_hash == sha256(b'lash.trigger.operation.v1\0["delete","","k",null,3]')
    answer = DeletedTrigger(subscription_id="id", revision=3)
    kept = ReceiptRow(first.request_hash, first.receipt(answer))
    assert first.replay(kept) == answer
    other = plan_operation("delete", NAME, DeletedTrigger, operation_id="o", revision=4)
    with pytest.raises(TriggerConflict, match="operation id 'o'"):
        other.replay(kept)
    with pytest.raises(CorruptData, match="receipt"):
        first.replay(ReceiptRow(first.request_hash, "[]"))
    assert plan_operation("delete", NAME, DeletedTrigger, operation_id=None).operation_id is None
    with pytest.raises(InvalidInput, match="operation_id"):
        plan_operation("delete", NAME, DeletedTrigger, operation_id="")
