"""Where an application declares something, to recognise a notebook cell that is run again."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple

_PACKAGE: Final = "lash"


class Place(NamedTuple):
    """A line of module-level code. Each execution of a cell, and each reload of a module, has its own code object."""

    module: str
    code: CodeType
    line: int


def declaring_place() -> Place | None:
    """Return the line of the application that called lash; None if it is inside a function."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    if frame is None or frame.f_code.co_flags & inspect.CO_NEWLOCALS:
        return None
    return Place(frame.f_globals.get("__name__", ""), frame.f_code, frame.f_lineno)


def is_run_again(known: Place | None, given: Place | None) -> bool:
    """Return whether the second place is the first one in a later execution of the same module.

    A loop, and two lines of one module, are parts of one execution. IPython compiles each statement of a cell for
    itself: two lines of one cell, whose name is not that of a file, are parts of one execution too.
    """
    if known is None or given is None or known.module != given.module or known.code is given.code:
        return False
    same_source = known.code.co_filename == given.code.co_filename
    return known.line == given.line or not same_source or Path(given.code.co_filename).is_file()
