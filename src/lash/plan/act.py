"""Rules of acts: what can be recorded, and the stored row."""

from __future__ import annotations

import msgspec

from lash.base.limits import MAX_INTEGER, check_identifier, check_integer
from lash.errors import InvalidInput
from lash.model.act import Act, ActOutcome


class ActRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored act."""

    position: int
    act_id: str
    operator: str
    verb: str
    target: str
    session_id: str | None
    process_id: str | None
    at_ms: int
    outcome: ActOutcome | None
    error: str | None


class ActDraft(msgspec.Struct, frozen=True):
    """An act that is about to be done."""

    act_id: str
    operator: str
    verb: str
    target: str
    session_id: str | None
    process_id: str | None


class ActFilter(msgspec.Struct, frozen=True):
    """Which acts are wanted; None is any. At most one of the session and the process is named."""

    operator: str | None
    session_id: str | None
    process_id: str | None


def check_act(act_id: str, by: object, verb: object, target: object, owner: ActFilter) -> ActDraft:
    """Return an act to record, or raise InvalidInput if a part is not an identifier."""
    return ActDraft(
        act_id,
        check_identifier("by", by),
        check_identifier("verb", verb),
        check_identifier("target", target),
        owner.session_id,
        owner.process_id,
    )


def check_filter(by: object, session_id: object, process_id: object) -> ActFilter:
    """Return which acts are wanted, or raise InvalidInput for a part that is not an identifier, or for two owners."""
    if session_id is not None and process_id is not None:
        raise InvalidInput("expected a session_id or a process_id, got both; an act concerns one of them")
    return ActFilter(
        None if by is None else check_identifier("by", by),
        None if session_id is None else check_identifier("session_id", session_id),
        None if process_id is None else check_identifier("process_id", process_id),
    )


def check_before(after: object) -> int:
    """Return the position before which a page begins: that of the last act of the previous page, or the highest."""
    return MAX_INTEGER if after is None else check_integer("after", after)


def check_error(error: object) -> str | None:
    """Return the class of an act's error, or None if it was done; raise InvalidInput for another value."""
    return None if error is None else check_identifier("error", error)


def decode_act(row: ActRow) -> Act:
    """Return the act that a row stores."""
    return Act(
        position=row.position,
        act_id=row.act_id,
        by=row.operator,
        verb=row.verb,
        target=row.target,
        session_id=row.session_id,
        process_id=row.process_id,
        at_ms=row.at_ms,
        outcome=row.outcome,
        error=row.error,
    )
