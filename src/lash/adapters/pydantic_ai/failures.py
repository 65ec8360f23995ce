"""Errors of models in records: a later run gets the same class, so that it falls back to another model again."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pydantic_ai import exceptions
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, ModelRequestTimeout, UnexpectedModelBehavior

from lash.base.shapes import read_json
from lash.errors import StepFailed

_LONGEST_TEXT: Final = 1_000
"""How much is kept of a message or a body: a record of a failure has 4,000 characters."""


class ModelFailed(Exception):
    """Stands for an error of a model in the record of its step."""

    def __init__(self, error: ModelAPIError | UnexpectedModelBehavior) -> None:
        self.error = error
        super().__init__(msgspec.json.encode(_facts(error)).decode())


class _Facts(msgspec.Struct, omit_defaults=True):
    error: str
    message: str
    model: str = ""
    body: str | None = None
    status: int | None = None
    retry_after: float | None = None
    timeout_s: float | None = None


def error_of(failed: StepFailed) -> Exception:
    """Return the error that a recorded failure stands for; a failure of anything else is returned as it is."""
    if failed.code != ModelFailed.__qualname__:
        return failed
    try:
        facts = read_json(failed.message, _Facts)
    except msgspec.DecodeError:
        return failed
    # Of their public classes; an error whose class is gone is one of the closest class that is still there.
    kind: Any = getattr(exceptions, facts.error, None)
    if not isinstance(kind, type):
        kind = ModelAPIError if facts.model else UnexpectedModelBehavior
    return _error(kind, facts)


def _error(kind: Any, facts: _Facts) -> Exception:  # noqa: ANN401 (one of their classes)
    error: Exception
    if facts.status is not None:
        error = ModelHTTPError.for_category(
            None if kind is ModelHTTPError else kind,
            status_code=facts.status,
            model_name=facts.model,
            body=facts.body,
            retry_after=facts.retry_after,
        )
    elif facts.timeout_s is not None:
        error = ModelRequestTimeout(facts.model, facts.timeout_s)
    elif issubclass(kind, UnexpectedModelBehavior):
        error = kind(facts.message, facts.body)
    else:
        error = kind(facts.model, facts.message, body=facts.body, retry_after=facts.retry_after)
    return error


def _facts(error: ModelAPIError | UnexpectedModelBehavior) -> _Facts:
    facts = _Facts(error=type(error).__name__, message=error.message[:_LONGEST_TEXT])
    facts.body = None if error.body is None else str(error.body)[:_LONGEST_TEXT]
    if isinstance(error, ModelAPIError):
        facts.model, facts.retry_after = error.model_name, error.retry_after
    if isinstance(error, ModelHTTPError):
        facts.status = error.status_code
    if isinstance(error, ModelRequestTimeout):
        facts.timeout_s = error.timeout
    return facts
