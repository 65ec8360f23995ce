"""Texts of ADK that a database can store: a lone surrogate, as of a stream that was cut, becomes a question mark."""

from __future__ import annotations

import json

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError


def storable(text: str) -> str:
    """Return the text without lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def json_text(model: BaseModel) -> str:
    """Return a value of ADK as JSON text, without the fields that are None."""
    try:
        return model.model_dump_json(exclude_none=True)
    except PydanticSerializationError:
        return storable(json.dumps(model.model_dump(mode="json", exclude_none=True), ensure_ascii=False))
