"""Failures of processes and turns, for lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lash.model.process.process import Outcome
    from lash.model.value import JSON

_FRAME: Final = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def reason_of(outcome: Outcome | None) -> str:
    """Return why a process did not succeed, with the line of the application; empty if it did or goes on."""
    from lash.model.process.process import Failure, Success

    if outcome is None or isinstance(outcome, Success):
        return ""
    if not isinstance(outcome, Failure):
        return outcome.message
    return f"{outcome.code}: {outcome.message}{where(outcome.raw)}"


def where(details: JSON) -> str:
    """Return the innermost line of the application in the stored details of a failure, as an addition to its reason."""
    from lash.model.failure import traceback_in

    trace = traceback_in(details)
    frames = [] if trace is None else _FRAME.findall(trace)
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f" ({file}:{line} in {function})"
