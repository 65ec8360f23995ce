"""What a program may use."""

from __future__ import annotations

from typing import Final

from lash.model.value import ClosedValue, Positive

SLICE: Final = 1_024
"""How many steps a machine runs before other tasks of the event loop get their turn: one or two milliseconds."""


class Limits(ClosedValue, frozen=True, kw_only=True):
    """The limits of one program. Strings, lists, nesting and ranges have limits of the language itself."""

    steps: Positive = 10_000_000
    """Steps between two effects; an endless loop without effects ends here, if it is not cancelled before."""
    memory_bytes: Positive = 16 * 1024 * 1024
    """About how many bytes all variables may have together."""
    effects: Positive = 100_000
    """Effects in the life of a process: calls, pauses, waits, starts, events."""
    checkpoint_every: Positive = 100
    """Effects after which the state of a process is stored, so that recovery replays at most this many."""
