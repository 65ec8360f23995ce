"""The contract of hints: that something may have changed, for those who wait for it."""

from __future__ import annotations

from typing import Protocol


class ChangeSignals(Protocol):
    """Hints that processes may have changed, by this storage or another one on the same database.

    A hint says when to look, never what there is to see. It may be late, needless or lost: whoever waits looks anew
    after a while all the same.
    """

    async def wait(self, timeout_s: float) -> None:
        """Return at a hint, or when the time is over. A hint given since the last call counts; one task waits."""
        ...

    def touch(self) -> None:
        """Give a hint. The stores call it after every write to a process that succeeded."""
        ...

    async def close(self) -> None:
        """End what runs for the hints; a second close is harmless."""
        ...
