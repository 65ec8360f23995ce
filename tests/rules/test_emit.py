"""Rules of occurrences: which process each delivery starts, or why it is rejected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lash.errors import (
    CorruptData,
    InvalidInput,
    OccurrenceConflict,
    OccurrenceNotFound,
    TriggerConflict,
    TriggerNotFound,
)
from lash.model.process.process import EngineInput, HostOriginator, ProcessIdentity
from lash.model.trigger.trigger import (
    DeliveryState,
    EmitReport,
    EventPointer,
    FixedInput,
    Occurrence,
    OccurrenceRequest,
    TriggerDelivery,
    TriggerDraft,
    WholeEvent,
)
from lash.plan.trigger.emit import (
    DeliveryRetry,
    DeliveryRow,
    OccurrenceRow,
    Planned,
    RejectDelivery,
    RetryFacts,
    StartDelivery,
    check_delivery,
    decode_delivery,
    decode_occurrence,
    delivery_columns,
    delivery_of,
    delivery_process_id,
    encode_occurrence,
    grant_columns,
    occurrence_id,
    plan_delivery,
    plan_retry,
    process_columns,
    reject_taken,
    report_of,
    starts_of,
)
from lash.plan.trigger.trigger import TriggerRow, encode_draft
from tests.rules.kit import sha256

REQUEST = OccurrenceRequest(source_type="t", source_key="s", idempotency_key="i", payload={"n": 1}, source=[2])
OCCURRENCE = "trigger:" + sha256(b'lash.trigger.occurrence.v1\0["t","s","i"]')
PROCESS = "process:trigger:" + sha256(b'lash.trigger.process.v1\0["' + OCCURRENCE.encode() + b'","id"]')


def subscription(*, enabled: bool = True, definition: str | None = None, **fields: Any) -> TriggerRow:  # noqa: ANN401
    values: dict[str, Any] = {
        "owner": HostOriginator(),
        "key": "k",
        "source_type": "t",
        "source_key": "s",
        "target": EngineInput(kind="work", payload={"m": 1, "args": "old"}),
        "environment_ref": "e",
    }
    encoded = encode_draft(TriggerDraft(**(values | fields)))
    body = encoded.body if definition is None else definition
    return TriggerRow(7, "id", "", "k", 1, encoded.fingerprint, body, enabled, 100, 100)


def occurrence(report: str = "{}") -> OccurrenceRow:
    encoded = encode_occurrence(REQUEST)
    return OccurrenceRow(3, encoded.occurrence_id, encoded.request_hash, encoded.body, report, 50)


def plan(row: TriggerRow, payload: Any = None) -> Planned:  # noqa: ANN401 - any JSON
    return plan_delivery(OCCURRENCE, REQUEST.payload if payload is None else payload, row)


def test_golden_ids() -> None:
    """Occurrence and process have these ids on every machine; the payload is not part of them."""
    assert occurrence_id("ui.button.pressed", "blue", "1") == (
        "trigger:" + sha256(b'lash.trigger.occurrence.v1\0["ui.button.pressed","blue","1"]')
    )
    assert delivery_process_id("trigger:x", "y") == (
        "process:trigger:" + sha256(b'lash.trigger.process.v1\0["trigger:x","y"]')
    )
    assert occurrence_id("a", "b", "c") == "trigger:5cd419a2b2a2a141832ad49659dbc8a6ff435dfa729b55a6ff8c1d4aba38f45b"
    assert (
        delivery_process_id("a", "b")
        == "process:trigger:3d0954eccbad4142e49881dfa04517f9291f279e01ea14eb6f23ccbe04a969f3"
    )


def test_golden_request_hash() -> None:
    """The request hash covers this content; the idempotency key is not part of it."""
    encoded = encode_occurrence(REQUEST)
    assert encoded.request_hash == sha256(b'lash.trigger.request.v1\0["t","s",{"n":1},[2]]')
    assert encoded.occurrence_id == OCCURRENCE
    other = encode_occurrence(msgspec.structs.replace(REQUEST, idempotency_key="j"))
    assert other.request_hash == encoded.request_hash
    bare = encode_occurrence(OccurrenceRequest(source_type="t", source_key="s", idempotency_key="i"))
    assert bare.request_hash == sha256(b'lash.trigger.request.v1\0["t","s",null,null]')


@pytest.mark.parametrize(
    "bad",
    [
        None,
        msgspec.structs.replace(REQUEST, source_type=""),
        msgspec.structs.replace(REQUEST, source_key=" "),
        msgspec.structs.replace(REQUEST, idempotency_key=""),
        msgspec.structs.replace(REQUEST, payload={1: 2}),
        msgspec.structs.replace(REQUEST, payload="x" * 262_144),
    ],
)
def test_bad_occurrences(bad: Any) -> None:  # noqa: ANN401
    """Blank names and content that cannot be stored are refused."""
    with pytest.raises(InvalidInput):
        encode_occurrence(bad)


def test_the_largest_occurrence() -> None:
    """An occurrence may have 262,144 characters of JSON, and no more."""
    room = 262_144 - len('{"source_type":"t","source_key":"s","idempotency_key":"i","payload":"","source":[2]}')
    largest = encode_occurrence(msgspec.structs.replace(REQUEST, payload="x" * room))
    assert len(largest.body) == 262_144
    with pytest.raises(InvalidInput, match="has 262,145 characters"):
        encode_occurrence(msgspec.structs.replace(REQUEST, payload="x" * (room + 1)))


def test_a_tuple_is_a_list_from_the_start() -> None:
    """A process gets the same inputs whether it is started at once or by a retry."""
    request = msgspec.structs.replace(REQUEST, payload={"x": (1, 2)})
    assert encode_occurrence(request).request.payload == {"x": [1, 2]}


def test_reading_an_occurrence() -> None:
    """A stored occurrence decodes to the emitted request."""
    assert decode_occurrence(occurrence()) == Occurrence(
        occurrence_id=OCCURRENCE,
        source_type="t",
        source_key="s",
        idempotency_key="i",
        payload={"n": 1},
        source=[2],
        occurred_at_ms=50,
    )
    with pytest.raises(CorruptData, match=OCCURRENCE):
        decode_occurrence(msgspec.structs.replace(occurrence(), request="{}"))


def test_the_same_occurrence() -> None:
    """An equal request gets the stored report; another one raises OccurrenceConflict."""
    stored = occurrence('{"occurrence_id":"o"}')
    assert encode_occurrence(REQUEST).first_report(stored) == EmitReport(occurrence_id="o")
    other = encode_occurrence(msgspec.structs.replace(REQUEST, payload=None))
    with pytest.raises(OccurrenceConflict, match="'i' of source 't', 's'"):
        other.first_report(stored)
    with pytest.raises(CorruptData, match="report"):
        encode_occurrence(REQUEST).first_report(occurrence("["))


def test_a_start() -> None:
    """Inputs replace ``args`` of the target; identity, grant and columns follow from the definition."""
    template = {
        "all": WholeEvent(),
        "one": EventPointer(path="/n"),
        "fixed": FixedInput(value=[7]),
        "none": FixedInput(value=None),
    }
    planned = plan(
        subscription(input_template=template, wake_session_id="w", identity=ProcessIdentity(kind="job", label="l"))
    )
    assert isinstance(planned, StartDelivery)
    assert planned.process_id == PROCESS
    process_input = planned.registration.registration.input
    assert process_input == EngineInput(
        kind="work", payload={"m": 1, "args": {"all": {"n": 1}, "one": 1, "fixed": [7], "none": None}}
    )
    columns = process_columns(planned)
    assert (columns[0], *columns[3:]) == (PROCESS, "rerunnable", "job", "l", None, None, "w", "e")
    assert columns[2] == planned.registration.body
    assert grant_columns([planned]) == [("w", PROCESS, "job", "l")]
    assert delivery_columns(planned) == ("id", "", "k", PROCESS, "started", None)


def test_only_what_starts_wants_a_process() -> None:
    """A rejected match registers nothing."""
    start, reject = plan(subscription()), plan(subscription(definition="{"))
    assert starts_of([reject, start, reject]) == [start]


def test_no_grant_without_a_session() -> None:
    """Only a process with a wake session gets a grant."""
    assert grant_columns(starts_of([plan(subscription())])) == []


@pytest.mark.parametrize(
    ("fields", "payload", "reason"),
    [
        ({"payload_schema": {"type": "string"}}, {"n": 1}, "payload: "),
        ({"payload_schema": {"properties": {"m": {}}}}, {"n": 1}, "payload"),
        ({"input_template": {"x": EventPointer(path="/a")}}, {"n": 1}, "input 'x': payload pointer '/a'"),
        ({"definition": "{"}, {"n": 1}, "cannot be read"),
    ],
)
def test_rejections(fields: dict[str, Any], payload: Any, reason: str) -> None:  # noqa: ANN401
    """An error of one match is the reason of its rejected delivery."""
    planned = plan(subscription(**fields), payload)
    assert isinstance(planned, RejectDelivery)
    assert planned.process_id == PROCESS
    assert reason in planned.reason
    assert delivery_columns(planned) == ("id", "", "k", PROCESS, "rejected", planned.reason)


def test_a_payload_that_would_lie_too_deep() -> None:
    """A payload too deep for a process, but not for an occurrence, is a rejected delivery."""
    deep: Any = 1
    for _ in range(97):
        deep = [deep]
    encode_occurrence(msgspec.structs.replace(REQUEST, payload=deep))
    planned = plan(subscription(input_template={"x": WholeEvent()}), deep)
    assert isinstance(planned, RejectDelivery)
    assert "nested" in planned.reason


def test_reasons_fit_their_column() -> None:
    """A reason has no NUL and does not quote a large payload in full."""
    planned = plan(subscription(payload_schema={"type": "integer"}), "\0" * 5_000)
    assert isinstance(planned, RejectDelivery)
    assert len(planned.reason) <= 1_000
    assert "\0" not in planned.reason


def test_a_nul_in_the_name_of_a_property_is_spelt_out() -> None:
    """The reason names the property with its NUL escaped."""
    row = subscription(payload_schema={"additionalProperties": {"type": "integer"}})
    planned = plan(row, {"a\0b": "x"})
    assert isinstance(planned, RejectDelivery)
    assert planned.reason.startswith("payload.a\\0b: ")


def test_ids_that_are_taken() -> None:
    """A taken id rejects the delivery unless the registration is equal; rejected deliveries stay rejected."""
    start, reject = plan(subscription()), plan(subscription(definition="{"))
    assert isinstance(start, StartDelivery)
    assert reject_taken([start, reject], {}) == [start, reject]
    assert reject_taken([start], {PROCESS: start.registration.registration_hash}) == [start]
    rejected = reject_taken([start, reject], {PROCESS: "other"})
    assert [type(each) for each in rejected] == [RejectDelivery, RejectDelivery]
    assert rejected[1] == reject
    reason = delivery_of(rejected[0]).reason
    assert reason is not None
    assert PROCESS in reason


def test_every_match_is_planned() -> None:
    """The deliveries of an occurrence are planned in the order of the matches."""
    rows = [subscription(), subscription(definition="{")]
    assert encode_occurrence(REQUEST).deliveries(rows) == [plan(row) for row in rows]


def test_a_report() -> None:
    """A report has the deliveries in the order of the matches."""
    start, reject = plan(subscription()), plan(subscription(definition="{"))
    report = report_of("o", [start, reject])
    assert report.occurrence_id == "o"
    assert [each.state for each in report.deliveries] == [DeliveryState.STARTED, DeliveryState.REJECTED]
    assert report.started_process_ids == (PROCESS,)


def test_what_is_told_of_a_delivery() -> None:
    """A delivery has its subscription, process, state, reason and attempt."""
    host, damaged = plan(subscription()), subscription(definition="{")
    told = TriggerDelivery(
        subscription_id="id",
        owner_session_id=None,
        key="k",
        process_id=PROCESS,
        state=DeliveryState.STARTED,
        reason=None,
        attempts=1,
    )
    assert delivery_of(host) == told
    rejected = plan(msgspec.structs.replace(damaged, owner_session_id="s"))
    assert isinstance(rejected, RejectDelivery)
    assert delivery_of(rejected, attempts=3) == msgspec.structs.replace(
        told, owner_session_id="s", state=DeliveryState.REJECTED, reason=rejected.reason, attempts=3
    )


def delivery(state: str = "rejected", owner: str = "s") -> DeliveryRow:
    return DeliveryRow("id", owner, "k", PROCESS, state, "why" if state == "rejected" else None, 3)


def test_reading_a_delivery() -> None:
    """A delivery with an unknown state is CorruptData."""
    assert decode_delivery(delivery()) == TriggerDelivery(
        subscription_id="id",
        owner_session_id="s",
        key="k",
        process_id=PROCESS,
        state=DeliveryState.REJECTED,
        reason="why",
        attempts=3,
    )
    assert decode_delivery(delivery(owner="")).owner_session_id is None
    with pytest.raises(CorruptData, match="'id'"):
        decode_delivery(delivery("lost"))


def retry(delivered: DeliveryRow, subscribed: TriggerRow | None) -> DeliveryRetry | TriggerDelivery:
    return plan_retry((OCCURRENCE, "id"), RetryFacts(occurrence(), delivered, subscribed))


def test_retries() -> None:
    """A rejected delivery is decided again, a started one is returned; a subscription must still match."""
    started = delivery("started")
    assert retry(started, None) == decode_delivery(started)
    assert retry(delivery(), subscription()) == DeliveryRetry(
        occurrence_key=3, planned=plan(subscription()), attempts=4
    )
    with pytest.raises(TriggerNotFound, match="session 's'"):
        retry(delivery(), None)
    with pytest.raises(TriggerConflict, match="disabled"):
        retry(delivery(), subscription(enabled=False))
    with pytest.raises(TriggerConflict, match="no longer watches"):
        retry(delivery(), subscription(source_key="x"))


def test_missing_deliveries() -> None:
    """The error names the missing occurrence or delivery."""
    names = check_delivery("o", "i")
    assert names == ("o", "i")
    with pytest.raises(OccurrenceNotFound, match="'o' is unknown"):
        plan_retry(names, RetryFacts(None, None, None))
    with pytest.raises(OccurrenceNotFound, match="'o' has no delivery to 'i'"):
        plan_retry(names, RetryFacts(occurrence(), None, None))
