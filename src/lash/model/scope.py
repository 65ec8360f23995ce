"""Execution scopes: which are valid, and the text that identifies each."""

from __future__ import annotations

from lash.base.limits import are_plain_identifiers, check_identifier
from lash.errors import InvalidInput
from lash.model.effect import (
    ExecutionScope,
    OperationScope,
    ProcessScope,
    TurnScope,
)


def check_execution_scope(scope: object) -> ExecutionScope:
    """Return the scope; raise InvalidInput if it is not one or has an id that cannot be stored."""
    if not isinstance(scope, ExecutionScope):
        raise InvalidInput(f"scope must be an execution scope, not {type(scope).__name__}")
    for name in scope.__struct_fields__:
        check_identifier(f"scope.{name}", getattr(scope, name))
    return scope


def scope_id(scope: object) -> str:
    """Return the text that identifies a scope; two scopes have the same text only if they are equal.

    The length of a session id precedes it, so a colon inside an id cannot be mistaken for a separator. Raises
    InvalidInput for a scope with a blank id.
    """
    # These two are nearly all, and each step names its scope several times.
    if type(scope) is TurnScope and are_plain_identifiers(scope.session_id, scope.turn_id):
        return _of_turn(scope.session_id, scope.turn_id)
    if type(scope) is ProcessScope and are_plain_identifiers(scope.process_id):
        return f"process:{scope.process_id}"
    checked = check_execution_scope(scope)
    match checked:
        case TurnScope(session_id=session_id, turn_id=turn_id):
            return _of_turn(session_id, turn_id)
        case ProcessScope(process_id=process_id):
            return f"process:{process_id}"
    return f"runtime_operation:{checked.operation_id}"


def scope_session_id(scope: ExecutionScope) -> str | None:
    """Return the session to which a scope belongs; None if it belongs to none."""
    return None if isinstance(scope, ProcessScope | OperationScope) else scope.session_id


def scope_process_id(scope: ExecutionScope) -> str | None:
    """Return the process to which a scope belongs; None if it belongs to none."""
    return scope.process_id if isinstance(scope, ProcessScope) else None


def turn_scope_id(session_id: str, turn_id: str) -> str:
    """Return the scope id of a turn; the scope ends with the turn's commit."""
    if are_plain_identifiers(session_id, turn_id):
        return _of_turn(session_id, turn_id)
    return scope_id(TurnScope(session_id=session_id, turn_id=turn_id))


def _of_turn(session_id: str, turn_id: str) -> str:
    return f"turn:{len(session_id)}:{session_id}:{turn_id}"
