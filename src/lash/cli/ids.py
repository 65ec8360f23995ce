"""Ids as arguments: a command takes an id or a unique beginning of it, and the shell completes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits
from lash.cli.exits import CommandFailed
from lash.cli.shell import Shell

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from lash.stores.storage import Storage

    Text = click.ParamType[str]
else:
    # Not generic in older versions of click.
    Text = click.ParamType

_SHOWN: Final = 5
"""How many candidates the error of an ambiguous id names."""
_COMPARED: Final = 100
"""How many ids an unknown one is compared with."""
_BEGINNING: Final = 2
"""How many characters an unknown id has in common with the ids that it is compared with."""
_COMPLETED: Final = 100
"""How many ids a shell offers."""

_WAIT_LENGTH: Final = 64
"""The length of the id of a wait, a hash in hexadecimal digits."""

Find = Callable[["Storage", str, int, str | None], Awaitable[Sequence[str]]]
"""Returns the ids that begin with a text, at most so many, in their order; of a session, if one is given."""
Check = Callable[["Storage", str], Awaitable[object]]
"""Raises the error of the store if the id is unknown."""


class Noun(Text):
    """The type of an argument or option that is the id of one noun.

    The option or argument ``session_id`` of the same command says which session a nested noun belongs to.
    """

    def __init__(self, name: str, *, find: Find, check: Check | None = None, listed_by: str = "") -> None:
        self.name = name
        self._listed_by = listed_by
        self._find = find
        self._check = check

    async def match(self, storage: Storage, text: str, *, within: str | None = None) -> str:
        """Return the only id that begins with a text, or the text itself if it is an id or if no id begins with it.

        It is one read of a range of ids. Several candidates are a usage error that names them.
        """
        found = await self._find(storage, text, _SHOWN + 1, within) if text else ()
        if text in found or not found:
            return text
        if len(found) == 1:
            return found[0]
        raise CommandFailed(exits.USAGE, _ambiguous(self.name, text, found))

    async def match_given(self, storage: Storage, text: str | None) -> str | None:
        """Return what `match` does; None if the option is not given."""
        return None if text is None else await self.match(storage, text)

    async def resolve(self, storage: Storage, text: str) -> str:
        """Return what `match` does; raise the error of the store, with similar ids, if it is unknown."""
        from lash.errors import NotFound

        found = await self.match(storage, text)
        if found != text or self._check is None:
            return found
        try:
            await self._check(storage, text)
        except NotFound as error:
            code, line = exits.explain(error)
            raise CommandFailed(code, line + await self._hint(storage, text)) from error
        return text

    async def resolve_all(self, storage: Storage, texts: Sequence[str]) -> list[str]:
        """Return what `resolve` does for each text, every id once; an error says that nothing was done."""
        try:
            return list(dict.fromkeys([await self.resolve(storage, text) for text in texts]))
        except CommandFailed as error:
            rest = "" if len(texts) == 1 else "; nothing was done"
            raise CommandFailed(error.code, error.line + rest) from error

    async def _hint(self, storage: Storage, text: str) -> str:
        """Return similar ids, or the command that lists all, as an addition to an error."""
        from difflib import get_close_matches

        compared = await self._find(storage, text[:_BEGINNING], _COMPARED, None)
        close = get_close_matches(text, compared, n=3)
        return f"; did you mean {' or '.join(map(repr, close))}?" if close else f"; see {self._listed_by}"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 (click's)
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the ids that begin with a text, for a shell; none if the storage cannot be read quickly."""
        from lash.cli.complete import read_ids

        shell = ctx.find_object(Shell)
        within = ctx.params.get("session_id")
        return [] if shell is None else read_ids(shell, lambda storage: self._complete(storage, incomplete, within))

    async def _complete(self, storage: Storage, incomplete: str, within: str | None) -> Sequence[str]:
        session_id = None if within is None else await SESSION.match(storage, within)
        return await self._find(storage, incomplete, _COMPLETED, session_id)


def _ambiguous(name: str, text: str, found: Sequence[str]) -> str:
    more = " and more" if len(found) > _SHOWN else ""
    return f"ambiguous {name} {text!r}: {', '.join(found[:_SHOWN])}{more}; type more of the id"


async def _sessions(storage: Storage, text: str, limit: int, _within: str | None) -> Sequence[str]:
    return await storage.sessions.ids(text, limit=limit)


async def _processes(storage: Storage, text: str, limit: int, _within: str | None) -> Sequence[str]:
    return await storage.processes.ids(text, limit=limit)


async def _waits(storage: Storage, text: str, limit: int, _within: str | None) -> Sequence[str]:
    # Waits are listed by id; no hash is as low as the beginning of one with zeros behind it.
    found = await storage.waits.pending(limit=limit, after=text.ljust(_WAIT_LENGTH, "0"))
    return [each.key_id for each in found if each.key_id.startswith(text)]


async def _workers(storage: Storage, text: str, limit: int, _within: str | None) -> Sequence[str]:
    listed = await storage.workers.list()
    return sorted(each.worker_id for each in listed if each.worker_id.startswith(text))[:limit]


async def _dead_letters(storage: Storage, text: str, limit: int, within: str | None) -> Sequence[str]:
    """Read all dead letters of a session: they are few, and ordered by their end."""
    from lash.cli import pages
    from lash.cli.session import dead_pages

    each = [letter.batch.batch_id async for letter in pages.each(dead_pages(storage, within))]
    return sorted(batch_id for batch_id in each if batch_id.startswith(text))[:limit]


async def _triggers(storage: Storage, text: str, limit: int, within: str | None) -> Sequence[str]:
    """Read all triggers of the host or of a session: they are few, and ordered by their age."""
    from lash.cli import pages
    from lash.cli.owner import owner_of
    from lash.cli.trigger import trigger_pages
    from lash.model.trigger.trigger import TriggerFilter

    fetch = trigger_pages(storage, TriggerFilter(owner=owner_of(within)))
    return sorted([each.key async for each in pages.each(fetch) if each.key.startswith(text)])[:limit]


async def _schedules(storage: Storage, text: str, limit: int, within: str | None) -> Sequence[str]:
    """Read all schedules of the host or of a session."""
    from lash.cli import pages
    from lash.cli.owner import owner_of
    from lash.cli.schedule import schedule_pages

    fetch = schedule_pages(storage, owner_of(within))
    return sorted([each.key async for each in pages.each(fetch) if each.key.startswith(text)])[:limit]


async def _check_session(storage: Storage, session_id: str) -> object:
    return await storage.session(session_id).meta()


async def _check_process(storage: Storage, process_id: str) -> object:
    return await storage.events.recent(process_id, 1)


SESSION: Final = Noun("session", find=_sessions, check=_check_session, listed_by="lash sessions ls")
PROCESS: Final = Noun("process", find=_processes, check=_check_process, listed_by="lash ps -a")
WAIT: Final = Noun("wait", find=_waits)
WORKER: Final = Noun("worker", find=_workers)
DEAD_LETTER: Final = Noun("dead letter", find=_dead_letters)
TRIGGER: Final = Noun("trigger", find=_triggers)
SCHEDULE: Final = Noun("schedule", find=_schedules)
