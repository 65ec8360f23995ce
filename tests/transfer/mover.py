"""A process that moves sessions and is killed meanwhile.

``python -m tests.transfer.mover copy SOURCE_URL TARGET_URL STATEMENT``, the same with ``move``, and ``… import PATH
TARGET_URL STATEMENT`` kill themselves before that statement on the target, and print a line if they finish
first.
"""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import lash
from lash.transfer import copy_storage, import_session, move_storage
from tests.proof.concurrency.trap import Trap


async def main(order: str, source: str, target_url: str, statement: int) -> None:
    trap = Trap(statement)
    async with await lash.open(target_url, on_statement=trap) as target:
        if order in ("copy", "move"):
            async with await lash.open(source) as storage:
                trap.armed = True
                await (copy_storage if order == "copy" else move_storage)(storage, target)
        else:
            stream = io.BytesIO(await asyncio.to_thread(Path(source).read_bytes))
            trap.armed = True
            await import_session(target, stream)
        trap.armed = False
        sys.stdout.write("done\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
