"""A sweep case: how the storage is prepared, which call is struck, and the expected result of a second call."""

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
    """The result of the same call when the first one was applied without the caller knowing."""

    SAME = "same"
    """The first result, and nothing is written: the call is idempotent."""
    REPORTED = "reported"
    """Nothing is written, and the result reports it: it was done already, or nothing was left to do."""
    MORE = "more"
    """The contract makes it a new call, which writes again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case(Generic[G]):
    """One operation on a prepared storage. The result of `ground` is passed to `call`, also in another process."""

    method: str
    """``Protocol.method``."""
    ground: Callable[[Storage, ManualClock], Awaitable[G]]
    call: Callable[[Storage, G], Awaitable[object]]
    again: Again | type[LashError]
    variant: str = ""
    steps: str = ""
    """Why it may be seen half done: it is more than one transaction. Empty where it is one."""
    blur: str = ""
    """A pattern for the parts of a row that may differ; an empty one matches nothing."""
    elusive: str = ""
    """Why a point may not be reached every time. Empty where each is."""
    lost: str = ""
    """Why a call that lash retries after a lost reply may return what a second call returns. Empty where it may not."""

    @property
    def name(self) -> str:
        return f"{self.method}-{self.variant}" if self.variant else self.method


AnyCase = Case[Any]

REPEATED = "lash repeats it after a lost answer, and a repeated call returns what was done before (Storage)"


async def bare(_storage: Storage, _clock: ManualClock) -> None:
    """Prepare nothing: an empty storage."""
