"""Sandboxes: subprocesses that interpret programs, shared by all programs of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lash.base.shapes import read_json
from lash.code.limits import CodeLimits
from lash.code.stubs import CHECK, check_stubs
from lash.errors import ConfigError, InvalidProgram
from lash.model.value import JSON

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession, MontySyntaxError, OSPolicy

_HOST_POLICY: Final[OSPolicy] = {"datetime": "call_host", "sleep": "call_host"}
"""The program's clock and pauses are those of its process."""
_WAIT_S: Final = 120.0
"""How long a run waits for a free sandbox; programs that wait for each other must not wait without end."""
_MISSING: Final = "programs in sandboxed Python need pydantic-monty: pip install 'lash-runtime[code]'"
_MOST_PROBLEMS: Final = 5
"""How many mistakes one check reports; the others often follow from the first ones."""


class SandboxCrashed(RuntimeError):
    """The sandbox of a program died. The attempt failed, and the next one has a new sandbox."""


class Sandboxes:
    """A pool of sandboxes for each event loop that uses it. It starts with its first use, and again after `close`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = weakref.WeakKeyDictionary()

    @contextlib.asynccontextmanager
    async def session(self, limits: CodeLimits, **options: Any) -> AsyncIterator[AsyncMontySession]:  # noqa: ANN401 (those of monty)
        """Return one sandbox for the block; it is killed if the block ends while the program runs."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = _Pool(self._most)
        async with pool.used() as monty, monty.checkout(limits=_resource_limits(limits), **options) as session:
            yield session

    async def check(
        self, source: str, stubs: str, inputs: Mapping[str, JSON], limits: CodeLimits
    ) -> InvalidProgram | None:
        """Return the mistakes of a program that can be found without running it, or None."""
        from pydantic_monty import MontySyntaxError, MontyTypingError

        size = len(source.encode("utf-8", "replace"))
        if size > limits.source_bytes:
            return InvalidProgram("program_too_long", f"the source has {size:,} bytes; at most {limits.source_bytes:,}")
        # The call stops the session before the first line of the program; the check sees all of it.
        guarded = f"{CHECK}()\n{source}"
        checked = check_stubs(stubs, inputs)
        try:
            async with self.session(
                limits, type_check=True, type_check_stubs=checked, type_check_format="json"
            ) as session:
                await session.feed_start(guarded, inputs=dict(inputs), print_callback=_ignore)
        except MontySyntaxError as error:
            return InvalidProgram("program_syntax_error", _syntax_problem(error, source))
        except MontyTypingError as error:
            return InvalidProgram("program_type_error", _type_problems(error.display(), source))
        return None

    async def close(self) -> None:
        """End the sandboxes of the current event loop, those in use when their programs have ended."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()


class _Pool:
    """The sandboxes of one event loop, from the first use until `close`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._users = 0
        self._closing = False
        self._starting = asyncio.Lock()
        self._monty: AsyncMonty | None = None

    @contextlib.asynccontextmanager
    async def used(self) -> AsyncIterator[AsyncMonty]:
        self._users += 1
        try:
            yield await self._started()
        finally:
            self._users -= 1
            if self._closing and not self._users:
                await self._end()

    async def close(self) -> None:
        self._closing = True
        if not self._users:
            await self._end()

    async def _started(self) -> AsyncMonty:
        async with self._starting:
            if self._monty is None:
                self._monty = await _open(self._most)
            return self._monty

    async def _end(self) -> None:
        monty, self._monty = self._monty, None
        if monty is not None:
            await monty.__aexit__(None, None, None)


async def _open(most: int) -> AsyncMonty:
    try:
        from pydantic_monty import AsyncMonty
    except ImportError:
        raise ConfigError(_MISSING) from None
    monty = AsyncMonty(min_processes=0, max_processes=most, checkout_timeout=_WAIT_S)
    return await monty.__aenter__()


def sandbox_version() -> str:
    """Return the version of the sandbox on this machine."""
    try:
        from pydantic_monty import __version__
    except ImportError:
        raise ConfigError(_MISSING) from None
    return __version__


def host_policy(seed: str) -> OSPolicy:
    """Return the policy of a run: clock and pauses of its process, and random numbers from a seed."""
    return {**_HOST_POLICY, "random_start": {"seed": seed}}


def _resource_limits(limits: CodeLimits) -> Any:  # noqa: ANN401 (a dict that monty types)
    return {
        "max_turn_duration_secs": limits.compute_s,
        "max_memory": limits.memory_bytes,
        "max_recursion_depth": limits.recursion,
        "max_suspensions": limits.calls,
    }


def _ignore(_stream: str, _text: str) -> None:
    """Drop printed text: a check runs nothing of the program."""


def _syntax_problem(error: MontySyntaxError, source: str) -> str:
    frames, text = error.traceback(), error.display("msg")
    if not frames:
        return f"syntax error: {text}"
    return problem(source, frames[-1].line - 1, frames[-1].column, f"syntax error: {text}")


def _type_problems(rendered: str, source: str) -> str:
    try:
        found = read_json(rendered, list[_Problem])
    except msgspec.MsgspecError:
        return rendered
    shown = [
        problem(source, each.location.row - 1, each.location.column, f"{each.code}: {each.message}")
        for each in found[:_MOST_PROBLEMS]
    ]
    more = len(found) - len(shown)
    return "\n".join([*shown, *([f"and {more} more"] if more else [])])


class _Location(msgspec.Struct, frozen=True):
    row: int
    column: int


class _Problem(msgspec.Struct, frozen=True):
    code: str
    message: str
    location: _Location


def problem(source: str, line: int, column: int, message: str) -> str:
    """Return a message with its place in the source: the line, and a mark below the column."""
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        return f"line {line}: {message}"
    mark = " " * max(column - 1, 0) + "^"
    return f"line {line}: {message}\n    {lines[line - 1]}\n    {mark}"
