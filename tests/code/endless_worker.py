"""A worker whose program computes without end; ``python -m tests.code.endless_worker URL FILE``.

It writes the ids of its sandboxes to the file. SIGINT and SIGTERM stop it as they stop ``lash worker``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import lash
from lash.code import CodeLimits
from tests.code.kit import sandboxes_of


async def main(url: str, marker: Path) -> None:
    """Run the program until a signal comes."""
    app = lash.App(url, options=lash.WorkerOptions(grace_s=0.2))

    def mark() -> None:
        marker.write_text(" ".join(map(str, sandboxes_of(os.getpid()))))

    # A sandbox whose worker was killed ends at this limit at the latest.
    program = app.code_process(tools=[mark], limits=CodeLimits(compute_s=1))
    stopped = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    async with app:
        await app.start(program, "mark()\nwhile True:\n    pass")
        await stopped.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
