"""Rules of the events that lash itself appends: their payloads and idempotency keys."""

import msgspec
import pytest

from lash.errors import InvalidInput
from lash.model.lease import LeaseOwner, LocalProcess
from lash.model.process.event import (
    EventDraft,
)
from lash.model.process.process import (
    Abandonment,
    Cancellation,
    ExternalRef,
    Failure,
    FailureClass,
    Outcome,
    ProcessStatus,
    Projection,
    SignalWait,
    Success,
)
from lash.model.value import JSONObject
from lash.plan.process.event import check_draft, fold
from lash.plan.process.event_draft import (
    abandon_request_draft,
    abandonment_draft,
    cancel_draft,
    check_signal_name,
    completion_draft,
    external_ref_draft,
    resumed_draft,
    signal_draft,
    started_draft,
    unleased_end_draft,
    waiting_draft,
)
from tests.rules.kit import OWNER, PROCESS, happened, registered, sha256

replace = msgspec.structs.replace
CANCEL_GOLDEN = "c28537baf84e4a72efe405565afe30b078f7cacf121abf7d798694f941be9965"
WAIT = SignalWait(name="go", ordinal=2)


@pytest.mark.parametrize(
    ("outcome", "event_type", "body"),
    [
        (Success(value={"b": 1, "a": [None]}), "completed", {"type": "success", "value": {"b": 1, "a": [None]}}),
        (Success(), "completed", {"type": "success"}),
        (Failure(code="x", message="m"), "failed", {"type": "failure", "code": "x", "message": "m"}),
        (
            Failure(failure_class=FailureClass.TIMEOUT, code="x", message="m", raw=0),
            "failed",
            {"type": "failure", "failure_class": "timeout", "code": "x", "message": "m", "raw": 0},
        ),
        (Cancellation(message="m", raw=[1]), "cancelled", {"type": "cancelled", "message": "m", "raw": [1]}),
        (
            Abandonment(message="m", evidence={"pid": 1}),
            "abandoned",
            {"type": "abandoned", "message": "m", "evidence": {"pid": 1}},
        ),
    ],
)
def test_a_completion_ends_the_process_with_its_outcome(outcome: Outcome, event_type: str, body: JSONObject) -> None:
    """The type follows the outcome, waiters get exactly that outcome, and no wait is left."""
    draft = completion_draft(PROCESS, outcome)
    assert draft == EventDraft(
        event_type=f"process.{event_type}",
        payload={"outcome": body},
        replay_key=f"process:process-1:terminal:process.{event_type}",
    )
    end = happened(draft.event_type, draft.payload)
    assert fold(registered(), Projection(wait=WAIT, cancel_requested=True), end) == Projection(
        status=ProcessStatus(event_type), outcome=outcome, cancel_requested=True
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "expected Success, Failure, Cancellation or Abandonment as outcome, got None"),
        ({"type": "success"}, "expected Success, Failure"),
        (Success(value=object()), "outcome.outcome.value is of type object"),  # type: ignore[arg-type]
        (Failure(code=1, message=""), "outcome: Expected `str`, got `int`"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_outcome_is_refused(wrong: Outcome, message: str) -> None:
    """An invalid outcome is refused before any read."""
    with pytest.raises(InvalidInput, match=message):
        completion_draft(PROCESS, wrong)


def test_a_cancellation_has_one_key_for_each_reason() -> None:
    """The same reason again is the same request."""
    assert cancel_draft(PROCESS, "stop") == EventDraft(
        event_type="process.cancel_requested",
        payload={"reason": "stop"},
        replay_key=f"process:process-1:cancel:{CANCEL_GOLDEN}",
    )
    assert cancel_draft(PROCESS, "").replay_key != cancel_draft(PROCESS, "stop").replay_key


def test_the_keys_of_the_other_drafts() -> None:
    """The keys name process, act and the act's identity, and never change."""
    assert abandon_request_draft("p", "stuck") == EventDraft(
        event_type="process.abandon_requested",
        payload={"reason": "stuck"},
        replay_key="process:p:abandon:" + sha256(b'lash.event.v1\0["process.abandon_requested",{"reason":"stuck"}]'),
    )
    assert signal_draft("p", "go-1_A", "id:7", [1]) == EventDraft(
        event_type="signal.go-1_A", payload=[1], replay_key="process:p:signal.go-1_A:id:7"
    )
    assert waiting_draft("p", WAIT) == EventDraft(
        event_type="process.waiting",
        payload={"wait": {"name": "go", "ordinal": 2}},
        replay_key="process:p:waiting:signal.go:2",
    )
    assert resumed_draft("p", WAIT) == EventDraft(
        event_type="process.resumed",
        payload={"name": "go", "ordinal": 2},
        replay_key="process:p:resumed:signal.go:2",
    )
    assert external_ref_draft(ExternalRef(backend="b", id="i")) == EventDraft(
        event_type="process.external_ref_set", payload={"backend": "b", "id": "i"}
    )


def test_a_start_is_one_for_each_owner() -> None:
    """Everything known about the owner is in the event, and so in its key."""
    known = LeaseOwner(
        owner_id="worker",
        incarnation_id="first",
        process=LocalProcess(host_id="h", boot_id="b", pid=1, process_start="s"),
    )
    assert started_draft("p", OWNER) == EventDraft(
        event_type="process.started",
        payload={"owner": {"owner_id": "worker", "incarnation_id": "first"}},
        replay_key=sha256(b'["started","p",{"owner_id":"worker","incarnation_id":"first"}]'),
    )
    begun = started_draft("p", known)
    assert begun.replay_key == sha256(
        b'["started","p",{"owner_id":"worker","incarnation_id":"first",'
        b'"process":{"host_id":"h","boot_id":"b","pid":1,"process_start":"s"}}]'
    )
    assert fold(registered(), Projection(), happened("process.started", begun.payload)) == Projection(started_by=known)


def test_a_process_is_given_up_with_an_abandonment_only() -> None:
    """It is the same event as any end of that kind; other outcomes are refused."""
    outcome = Abandonment(message="gone", evidence={"pid": 1})
    assert abandonment_draft("p", outcome) == EventDraft(
        event_type="process.abandoned",
        payload={"outcome": {"type": "abandoned", "message": "gone", "evidence": {"pid": 1}}},
        replay_key="process:p:terminal:process.abandoned",
    )
    with pytest.raises(InvalidInput, match="process 'p': expected an Abandonment, got Success"):
        abandonment_draft("p", Success())  # type: ignore[arg-type]


def test_every_character_of_a_name_may_stand_in_it() -> None:
    """Every allowed character works alone and together with all others."""
    name = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    assert check_signal_name(name) == name


def test_keys_stay_keys_for_the_longest_ids() -> None:
    """An id of full length leaves no room for a prefix, so a hash replaces the long key."""
    longest = "p" * 255
    drafts = (
        completion_draft(longest, Success()),
        cancel_draft(longest, "stop"),
        abandon_request_draft(longest, "stuck"),
        signal_draft(longest, "go", "s" * 255, None),
        waiting_draft(longest, WAIT),
        resumed_draft(longest, WAIT),
        started_draft(longest, OWNER),
    )
    for draft in drafts:
        assert check_draft(draft) is draft
    assert len({draft.replay_key for draft in drafts}) == len(drafts)
    assert drafts[0].replay_key == "sha256:" + sha256(f"process:{longest}:terminal:process.completed".encode())
    exact = "p" * (255 - len("process::terminal:process.completed"))
    assert completion_draft(exact, Success()).replay_key == f"process:{exact}:terminal:process.completed"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "a:b", "a\n", None, 7])
def test_names_that_no_signal_can_have(name: str) -> None:
    """A name has only ASCII letters, digits, underscore and hyphen."""
    message = "expected a signal name of"
    with pytest.raises(InvalidInput, match=message):
        check_signal_name(name)
    with pytest.raises(InvalidInput, match=message):
        signal_draft(PROCESS, name, "1", None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (replace(WAIT, name="a b"), "expected a signal name of"),
        (replace(WAIT, name=""), "expected a signal name of"),
        (replace(WAIT, ordinal=-1), "wait: Expected `int` >= 0"),
        (replace(WAIT, ordinal=None), "wait: Expected `int`"),
        (replace(WAIT, ordinal=2**63), "wait.ordinal is an integer beyond 64 bits"),
        ("go", "wait: Expected `object`"),
    ],
)
def test_waits_that_cannot_be_stored_are_refused(wrong: SignalWait, message: str) -> None:
    """Both parking and resuming refuse an invalid wait."""
    for draft in (waiting_draft, resumed_draft):
        with pytest.raises(InvalidInput, match=message):
            draft(PROCESS, wrong)


def test_other_drafts_that_cannot_be_stored_are_refused() -> None:
    """Reasons are text, signals have ids, references have both their names."""
    for request in (cancel_draft, abandon_request_draft):
        with pytest.raises(InvalidInput, match="reason must be text, not NoneType"):
            request(PROCESS, None)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="reason contains a lone surrogate"):
            request(PROCESS, "\ud800")
    with pytest.raises(InvalidInput, match="signal_id is blank"):
        signal_draft(PROCESS, "go", "", None)
    with pytest.raises(InvalidInput, match="external_ref: Expected `str`, got `null`"):
        external_ref_draft(ExternalRef(backend="b", id=None))  # type: ignore[arg-type]


def test_giving_up_is_no_ordinary_end() -> None:
    """An abandonment has its own conditions and is not written as an end without a lease."""
    with pytest.raises(InvalidInput, match="abandon"):
        unleased_end_draft(PROCESS, Abandonment(message="lost"))
    assert unleased_end_draft(PROCESS, Success(value=1)).event_type == "process.completed"
