"""Limits on whole turns and whole processes."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from lash.base.limits import check_identifier
from lash.errors import ConfigError
from lash.runtime.steps.limit import LimitOf

if TYPE_CHECKING:
    from lash.runtime.steps.journal import Journal
    from lash.runtime.steps.parking import Parking

LimitKey: TypeAlias = str | Callable[..., str | Awaitable[str]]
"""The key of a limit, or a function of a turn, or of a context and the arguments of a process, that returns it."""


class RunLimit:
    """The limit of whole turns of an agent, or of whole processes."""

    def __init__(self, name: str, key: LimitKey) -> None:
        self.name = check_identifier("the name of a limit", name)
        if not isinstance(key, str) and not callable(key):
            raise ConfigError(f"limit_key: expected a text or a function, got {key!r:.80}")
        self._key = key

    async def of(self, *args: object, **kwargs: object) -> LimitOf:
        """Return the limit with the key of one turn or process."""
        if isinstance(self._key, str):
            return LimitOf(self.name, self._key)
        found = self._key(*args, **kwargs)
        return LimitOf(self.name, await found if inspect.isawaitable(found) else found)


def run_limit(name: str | None, key: LimitKey) -> RunLimit | None:
    """Return the limit that a declaration names; None if it names none."""
    if name is None and key != "":
        raise ConfigError("limit_key needs a limit: limit=..., limit_key=...")
    return None if name is None else RunLimit(name, key)


@contextlib.asynccontextmanager
async def under_limit(
    limit: RunLimit | None, journal: Journal, parking: Parking[Any], *args: object, **kwargs: object
) -> AsyncIterator[None]:
    """Run the block under the limit of whole turns or processes, if there is one; the arguments are those of its key.

    A cancelled run does not wait: it leaves the line, and is over, or does what its code does when it is cancelled.
    """
    if limit is None:
        yield
        return
    of = await limit.of(*args, **kwargs)
    if parking.cancels_later:
        await journal.limits.leave_run(journal, of)
        if not journal.has_begun:
            parking.deliver_cancel()
        yield
        return
    async with journal.limits.run_admitted(journal, of):
        yield
