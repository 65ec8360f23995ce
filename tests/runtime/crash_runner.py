"""Runs workers, each in a process of its own, that are killed at a point; ``python -m tests.runtime.crash_runner``.

It reads one JSON object for each worker from its input, forks, and answers with how the child ended. Forking saves the
start of an interpreter for each of some hundred workers; what is forked has no thread and no connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw
import asyncpg

import lash
from lash.postgres.engine.database import Database
from lash.runtime.hooks import Attributes
from lash.sqlite.engine.statements import Statements
from tests.runtime.crash_app import build, is_finished

if TYPE_CHECKING:
    from lash.postgres.engine.pool import PooledConnection

_IGNORED: Final = ("begin", "savepoint", "release", "rollback")
"""Boundaries that are left out: a crash there loses the same as a crash at a neighbour."""
_COMMIT: Final = "commit"
_LIMIT_S: Final = 90


class Killer(lash.Hook):
    """Records every boundary, and kills this process at the named one."""

    def __init__(self, point: str | None) -> None:
        self._point = point
        self._seen: Counter[str] = Counter()
        self.trace: list[str] = []
        self.armed = False
        self.running = 0
        """How many statements of the application have been sent and not answered."""

    def reach(self, boundary: str) -> None:
        if not self.armed:
            return
        self._seen[boundary] += 1
        reached = f"{boundary} #{self._seen[boundary]}"
        self.trace.append(reached)
        if reached == self._point:
            os.kill(os.getpid(), signal.SIGKILL)

    def statement(self, name: str) -> None:
        if _counts(name) and name != _COMMIT:
            self.reach(f"before {name}")

    def after_statement(self, name: str) -> None:
        if _counts(name):
            self.reach(f"after {name}")

    def before_commit(self) -> None:
        self.reach(f"before {_COMMIT}")

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Count a statement as running."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    @contextlib.contextmanager
    def span(self, kind: str, attributes: Attributes) -> Iterator[None]:
        name = f"{kind} {attributes.get('step', attributes.get('process', ''))}".strip()
        self.reach(f"before {name}")
        yield
        self.reach(f"after {name}")


def _counts(name: str) -> bool:
    # How often a worker polls depends on the clock, and a poll changes nothing.
    return name not in _IGNORED and (not name.startswith("work_") or "wake" in name)


def _watch_ends_of_statements(killer: Killer) -> None:
    """Report the application's statements once they have run; there is no public hook for that."""
    send, command, control = Database.send, Database.command, Statements.control

    async def watched_send(
        self: Database, connection: PooledConnection, name: str, text: str, args: Sequence[object]
    ) -> list[asyncpg.Record]:
        if self._on_statement is None:
            return await send(self, connection, name, text, args)
        with killer.answering():
            rows = await send(self, connection, name, text, args)
            killer.after_statement(name)
        return rows

    async def watched_command(
        self: Database, connection: PooledConnection, name: str, text: str, args: Sequence[object] = ()
    ) -> str:
        if self._on_statement is None:
            return await command(self, connection, name, text, args)
        with killer.answering():
            if name == _COMMIT:
                killer.before_commit()
            tag = await command(self, connection, name, text, args)
            killer.after_statement(name)
        return tag

    def watched_control(self: Statements, connection: apsw.Connection, name: str) -> None:
        writes = self._hook is not None and name == _COMMIT and not connection.readonly("main")
        if not writes:
            control(self, connection, name)
            return
        with killer.answering():
            killer.before_commit()
            control(self, connection, name)
            killer.after_statement(name)

    Database.send, Database.command = watched_send, watched_command  # type: ignore[method-assign]
    Statements.control = watched_control  # type: ignore[method-assign]


async def work(
    url: str,
    directory: Path,
    point: str | None,
    build: Callable[[str, Path, Killer], lash.App],
    is_finished: Callable[[lash.Storage], Awaitable[bool]],
) -> None:
    """Work until everything is finished, or until the point of the kill."""
    killer = Killer(point)
    _watch_ends_of_statements(killer)
    app = build(url, directory / "counts", killer)
    async with await lash.open(url) as beside, app, asyncio.timeout(_LIMIT_S):
        # The worker has not polled yet.
        killer.armed = True
        # The last commit is visible from outside before it is answered.
        while killer.running or not await is_finished(beside):  # noqa: ASYNC110 (it polls from outside)
            await asyncio.sleep(0.02)
        killer.armed = False
    (directory / "trace.json").write_text(json.dumps(killer.trace))


def _child(order: dict[str, str | None]) -> int:
    try:
        asyncio.run(work(str(order["url"]), Path(str(order["directory"])), order["point"], build, is_finished))
    except BaseException:  # noqa: BLE001 (the parent knows the child by its exit code alone)
        traceback.print_exc()
        return 1
    return 0


def serve(run: Callable[[dict[str, str | None]], int]) -> None:
    """Run one child for each line of the input."""
    for line in sys.stdin:
        began, pid = time.monotonic(), os.fork()
        if pid == 0:
            os._exit(run(json.loads(line)))
        _, status = os.waitpid(pid, 0)
        answer = {"code": os.waitstatus_to_exitcode(status), "seconds": round(time.monotonic() - began, 3)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    # Before the first fork, so that no child loads them again.
    import lash.postgres.storage
    import lash.runtime.app
    import lash.sqlite.storage

    assert all((lash.postgres.storage, lash.runtime.app, lash.sqlite.storage))
    serve(_child)
