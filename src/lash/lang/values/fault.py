"""Why a program cannot continue."""

from __future__ import annotations

import enum


class FaultKind(enum.StrEnum):
    """What ended a program that did not end itself."""

    TYPE = "type_error"
    VALUE = "value_error"
    UNKNOWN_NAME = "unknown_name"
    LOOP = "loop_over_non_list"
    UNWRAP = "unwrap_failed"
    HOST = "host_error"
    LIMIT = "limit_exceeded"


class Fault(Exception):
    """A program did what the language does not allow; the message and the hint are for its author."""

    def __init__(self, kind: FaultKind, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint


def type_error(message: str, hint: str | None = None) -> Fault:
    """Return the error of an operation on values of the wrong kind."""
    return Fault(FaultKind.TYPE, message, hint)


def value_error(message: str, hint: str | None = None) -> Fault:
    """Return the error of an operation on a value that it does not accept."""
    return Fault(FaultKind.VALUE, message, hint)


def limit_error(message: str, hint: str | None = None) -> Fault:
    """Return the error of a program that exceeds a limit."""
    return Fault(FaultKind.LIMIT, message, hint)
