"""Questions of waits, as an application gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from lash.base.shapes import convert
from lash.errors import InvalidInput
from lash.model.value import JSON
from lash.model.wait import Question
from lash.runtime.steps.values import UNTYPED, json_schema

Ask: TypeAlias = str | Question | Mapping[str, JSON]
"""A question: its text, a `Question`, or the fields of one."""


def question_of(ask: Ask | None, declared: object) -> Question | None:
    """Return the question; if it has no schema, that of the declared type of the answer. None if nothing is asked."""
    if ask is None:
        return None
    question = _question(ask)
    if question.schema is not None or declared is UNTYPED:
        return question
    return msgspec.structs.replace(question, schema=json_schema(declared))


def _question(ask: object) -> Question:
    if isinstance(ask, Question):
        return ask
    if isinstance(ask, str):
        return Question(text=ask)
    try:
        return convert(ask, Question)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"expected a text, or a Question with text, schema and details: {error}") from None
