"""What a sweep case says: how the ground is laid, which call is struck, and what a second call is to answer."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from lash.errors import LashError
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock

G = TypeVar("G")


class Again(enum.Enum):
    """What the same call answers when it was done before and nobody knew."""

    SAME = "same"
    """The first answer, and nothing is written: the call is idempotent."""
    TOLD = "told"
    """Nothing is written, and the answer tells so: it was done already, nothing was left to do."""
    MORE = "more"
    """The contract makes it a new call, which writes again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case(Generic[G]):
    """One operation on prepared ground. What `ground` returns is handed to `call`, also in another process."""

    method: str
    """``Protocol.method``."""
    ground: Callable[[Storage, ManualClock], Awaitable[G]]
    call: Callable[[Storage, G], Awaitable[object]]
    again: Again | type[LashError]
    variant: str = ""
    steps: str = ""
    """Why it may be seen half done: it is more than one transaction. Empty where it is one."""
    blur: str = ""
    """What of a row is no difference, as a pattern; an empty one matches nothing."""
    elusive: str = ""
    """Why a point may not be reached every time. Empty where each is."""
    lost: str = ""
    """Why a call that repeats itself after a lost answer may answer like a second call. Empty where it may not."""

    @property
    def name(self) -> str:
        return f"{self.method}-{self.variant}" if self.variant else self.method


AnyCase = Case[Any]

REPEATED = "lash repeats it after a lost answer, and a repeated call is told what was done before (Storage)"


async def bare(_storage: Storage, _clock: ManualClock) -> None:
    """Lay no ground: an empty storage."""
