"""Runs workers on the program of a case, killed at a point; ``python -m tests.proof.programs.kill_runner``.

The directory of an order has the name of its case in the file ``case``.
"""

from __future__ import annotations

import asyncio
import traceback
from functools import partial
from pathlib import Path
from typing import Final

import lash
from lash.runtime.hooks import Hook
from tests.proof.programs.case import PROCESS, Calls, Case, answer
from tests.proof.programs.cases import CASES
from tests.runtime.crash_runner import serve, work

PAUSE_S: Final = 0.05
OPTIONS: Final = lash.WorkerOptions(lease_ttl_s=60, poll_s=0.2)
"""A lease outlives every test: a takeover needs a holder that is provably dead."""
BY_ID: Final = {case.id: case for case in CASES}


def build(case: Case, url: str, calls: Path, *hooks: Hook) -> lash.App:
    """Return an application with the program of a case."""
    app = lash.App(url, options=OPTIONS, hooks=hooks)
    case.declare(app, Calls(calls, pause_s=PAUSE_S))
    return app


async def is_finished(case: Case, storage: lash.Storage) -> bool:
    """Answer open questions, and return whether the process has ended."""
    await answer(storage, case)
    record = await storage.processes.get(PROCESS)
    return record is not None and record.is_terminal


def _child(order: dict[str, str | None]) -> int:
    directory = Path(str(order["directory"]))
    case = BY_ID[(directory / "case").read_text()]
    try:
        worker = work(str(order["url"]), directory, order["point"], partial(build, case), partial(is_finished, case))
        asyncio.run(worker)
    except BaseException:  # noqa: BLE001 (the parent knows the child by its exit code alone)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    # Before the first fork, so that no child loads them again.
    import lash.code.engine
    import lash.lang.process.engine
    import lash.postgres.storage
    import lash.runtime.app
    import lash.sqlite.storage

    assert all(
        (lash.code.engine, lash.lang.process.engine, lash.postgres.storage, lash.runtime.app, lash.sqlite.storage)
    )
    serve(_child)
