"""The error tree is the one drawn in the module's docstring, and every error carries its advice."""

import inspect
import pickle
import re

import pytest

import lash
from lash import errors
from lash.errors import Advice, LashError
from lash.model.lease import process_resource

ADVICE = {
    Advice.FIX: {
        *("ConfigError", "InvalidInput", "CommitTooLarge", "SessionBindingMismatch", "StorageClosed"),
        *("UnknownDefinition", "CannotUnseal", "InvalidProgram"),
    },
    Advice.DECIDE_AGAIN: {
        *("NotFound", "SessionNotFound", "NodeNotFound", "BlobNotFound", "ArtifactNotFound", "AttachmentNotFound"),
        *("ProcessNotFound", "ProcessPruned", "GrantNotFound"),
        *("Conflict", "RevisionConflict", "TurnConflict", "NodeConflict", "GraphConflict", "SourceKeyConflict"),
        "RecordConflict",
        *("RegistrationConflict", "EventConflict", "ProcessTerminal"),
        *("GraphShared", "SessionExists"),
        *("ExecutionError", "StepFailed", "OutcomeUnknown", "ProcessFailed", "TurnFailed", "WaitRejected"),
        *("EffectNotRecorded", "WaitUnknown", "TriggerNotFound", "OccurrenceNotFound", "ScheduleNotFound"),
        *("EffectMismatch", "TriggerConflict", "OccurrenceConflict", "ScheduleConflict", "DeadLetterNotFound"),
    },
    Advice.RETRY: {"StoreUnavailable", "SweepIncomplete", "MaintenanceFailed", "WaitTimedOut", "SessionBusy"},
    Advice.STOP: {
        *("LashError", "StoreError", "SessionDeleted", "LeaseLost", "ClaimLost", "StorageFailure", "CorruptData"),
        "EffectLeaseLost",
        *("SchemaMismatch", "NewerSchema", "PendingMigrations", "ForeignDatabase"),
    },
}
CLASSES = {name: each for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, LashError)}


def drawn_parents() -> dict[str, str]:
    """Return the parent of every class according to the drawing in the module's docstring."""
    parents: dict[str, str] = {}
    branch: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^    (?P<bars>[│├└─ ]*)(?P<name>[A-Z][A-Za-z]+)\b", line)
        if match is not None:
            level = len(match["bars"]) // 4
            branch[level:] = [match["name"]]
            if level:
                parents[match["name"]] = branch[level - 1]
    return parents


def test_the_drawn_tree_is_the_real_one() -> None:
    """Every class is in the drawing, below its base class."""
    assert drawn_parents() == {
        name: each.__bases__[0].__name__ for name, each in CLASSES.items() if each is not LashError
    }


@pytest.mark.parametrize("advice", Advice)
def test_every_class_gives_the_advice_it_is_meant_to(advice: Advice) -> None:
    """The advice of each class is listed here, and a new class must be added."""
    assert {name for name, each in CLASSES.items() if each.advice is advice} == ADVICE[advice]


def test_every_error_can_be_imported_from_the_package() -> None:
    """Callers catch ``lash.errors.SomeError``; the common ones are also in ``lash``."""
    assert {name for name in CLASSES if getattr(lash.errors, name) is CLASSES[name]} == set(CLASSES)
    assert {name for name in CLASSES if name in dir(lash) and getattr(lash, name) is not CLASSES[name]} == set()


def test_every_class_says_when_it_is_raised() -> None:
    """Each class has its own docstring."""
    assert [name for name, each in CLASSES.items() if not vars(each).get("__doc__")] == []


def test_messages_name_what_they_are_about() -> None:
    """Numbers and names are in the message and in the fields."""
    assert str(errors.RevisionConflict("s", 3, 5)) == (
        "session 's' is at revision 5, the commit expected 3; load and decide again"
    )
    assert str(errors.CommitTooLarge("bytes", 70_000_000, 64_000_000)) == (
        "the commit holds 70,000,000 bytes; this storage accepts at most 64,000,000"
    )
    assert "schema 9" in str(errors.NewerSchema(9, 2))
    assert "up to 2" in str(errors.NewerSchema(9, 2))
    assert "0001_a, 0002_b" in str(errors.PendingMigrations(0, ("0001_a", "0002_b")))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.ProcessNotFound("p"), "unknown process 'p'"),
        (errors.ProcessPruned("p"), "process 'p' ended and was pruned"),
        (errors.GrantNotFound("s", "p"), "process 'p' is not granted to session 's'"),
        (
            errors.RegistrationConflict("p", "a" * 64, "b" * 64),
            "process 'p' was registered with other content: existing aaaaaaaaaaaa, new bbbbbbbbbbbb",
        ),
        (errors.EventConflict("p", "key"), "process 'p': replay key 'key' was used for another event"),
        (errors.ProcessTerminal("p", "failed"), "process 'p' is already terminal: failed"),
        (errors.WaitTimedOut("p", "outcome", 2.5), "process 'p': no outcome within 2.5 s"),
        (errors.LeaseLost(process_resource("p"), "it expired"), "the lease on process 'p' does not hold: it expired"),
    ],
)
def test_errors_of_processes_name_the_process(error: LashError, message: str) -> None:
    """The message names the process and the obstacle."""
    assert str(error) == message


def test_a_wait_may_be_for_no_process() -> None:
    """A wait without a process names only what was awaited."""
    assert str(errors.WaitTimedOut(None, "resolution of wait abc", 2)) == "no resolution of wait abc within 2 s"


def test_an_unknown_outcome_is_said_so() -> None:
    """An error says that the call may have been applied only if it was made so."""
    assert errors.StoreUnavailable("lost", outcome_unknown=True).outcome_unknown is True
    assert errors.StoreUnavailable("busy").outcome_unknown is False
    assert errors.StorageFailure("full").outcome_unknown is False


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (lash.RevisionConflict("s", 1, 2), {"session_id": "s", "expected": 1, "actual": 2}),
        (lash.SessionNotFound("s"), {"session_id": "s"}),
        (lash.StoreUnavailable("gone", outcome_unknown=True), {"outcome_unknown": True}),
        (lash.StorageClosed(), {}),
        (errors.ProcessNotFound("p"), {"process_id": "p"}),
        (errors.ProcessPruned("p"), {"process_id": "p"}),
        (errors.GrantNotFound("s", "p"), {"session_id": "s", "process_id": "p"}),
        (
            errors.RegistrationConflict("p", "a" * 64, "b" * 64),
            {"process_id": "p", "existing_hash": "a" * 64, "new_hash": "b" * 64},
        ),
        (errors.EventConflict("p", "key"), {"process_id": "p", "replay_key": "key"}),
        (errors.ProcessTerminal("p", "failed"), {"process_id": "p", "status": "failed"}),
        (errors.WaitTimedOut("p", "outcome", 2.5), {"process_id": "p", "awaited": "outcome", "timeout_s": 2.5}),
        (
            errors.LeaseLost(process_resource("p"), "it expired"),
            {"resource": process_resource("p"), "reason": "it expired"},
        ),
    ],
)
def test_an_error_crosses_into_another_process(error: LashError, fields: dict[str, object]) -> None:
    """A pickled error keeps its class, message and fields, as process pools need."""
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), fields)
