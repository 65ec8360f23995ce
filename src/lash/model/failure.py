"""The stored details of a failure: JSON that a worker writes beside the reason."""

from __future__ import annotations

from lash.model.value import JSON


def traceback_in(details: JSON) -> str | None:
    """Return the traceback in the stored details of a failure, if there is one."""
    found = details.get("traceback") if isinstance(details, dict) else None
    return found if isinstance(found, str) and found else None
