"""Selectors: how they take values out of payloads."""

from __future__ import annotations

import re
from typing import Final

from lash.base.codec import canonical
from lash.errors import InvalidInput
from lash.model.process.event import Constant, Pointer, Present, Selector, Template, WholePayload
from lash.model.value import JSON

_MISSING: Final = object()
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")
"""An array index of RFC 6901: no sign and no leading zero; the length bounds the work of ``int``."""
_FIELD: Final = re.compile(r"\{([^{}]*)\}")


def select(selector: Selector, payload: JSON) -> JSON:
    """Return the selected value, or raise InvalidInput if a pointer does not match."""
    match selector:
        case WholePayload():
            return payload
        case Constant():
            return selector.value
        case Present():
            return _find(selector.path, payload) is not _MISSING
        case Pointer():
            found = _find(selector.path, payload)
            if found is _MISSING:
                raise InvalidInput(f"payload pointer {selector.path!r} did not match")
            return found  # type: ignore[return-value]
    return _fill(selector, payload)


def as_text(value: JSON) -> str:
    """Return text unchanged, and any other value as compact JSON."""
    return value if isinstance(value, str) else canonical(value).decode()


def is_truthy(value: JSON) -> bool:
    """Return whether a value counts as true: every number does; null, false and empty values do not."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return True
    return bool(value)


def check_pointer(path: object) -> None:
    """Raise InvalidInput unless the path is a JSON pointer: empty, or starting with a slash."""
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise InvalidInput(f"expected a JSON pointer that starts with a slash, got {path!r:.80}")


def check_selector(selector: Selector) -> None:
    """Raise InvalidInput for an invalid pointer anywhere in the selector, or a field that cannot be filled in."""
    if isinstance(selector, Pointer | Present):
        check_pointer(selector.path)
    if isinstance(selector, Template):
        for name, field in selector.fields.items():
            if "{" in name or "}" in name:
                raise InvalidInput(f"expected a template field without braces, got {name!r:.80}")
            check_selector(field)


def _find(path: str, payload: JSON) -> object:
    current: object = payload
    for token in path.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(current, dict):
            current = current.get(key, _MISSING)
        elif isinstance(current, list | tuple) and _INDEX.fullmatch(key) and int(key) < len(current):
            current = current[int(key)]
        else:
            return _MISSING
    return current


def _fill(selector: Template, payload: JSON) -> str:
    """Replace all fields in one pass, so that a value that looks like a field is not replaced."""
    values = {name: as_text(select(field, payload)) for name, field in selector.fields.items()}
    return _FIELD.sub(lambda match: values.get(match[1], match[0]), selector.template)


def select_for(process_id: str, selector: Selector, payload: JSON) -> JSON:
    """Return the selected value; an error names the process."""
    try:
        return select(selector, payload)
    except InvalidInput as error:
        raise InvalidInput(f"process {process_id!r}: {error}") from None
