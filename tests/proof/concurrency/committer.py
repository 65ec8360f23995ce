"""A process that commits turn after turn to one session until it is killed.

``python -m tests.proof.concurrency.committer URL SESSION NAME`` prints one line for each acknowledged commit, after the
acknowledgement.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

import lash
from tests.factories.session import commit, draft, node, spent


async def commit_forever(url: str, session_id: str, name: str) -> None:
    """Commit under new turn ids; on a conflict another process was first, so read the head and try again."""
    async with await lash.open(url) as storage:
        session = storage.session(session_id)
        for number in itertools.count():
            turn_id = f"{name}-{number}"
            while True:
                read = await session.load(lash.model.ActivePath(last=1))
                try:
                    await session.commit(_turn(session_id, turn_id, read))
                except lash.RevisionConflict:
                    continue
                break
            sys.stdout.write(turn_id + "\n")
            sys.stdout.flush()


def _turn(session_id: str, turn_id: str, read: lash.model.SessionRead | None) -> lash.model.Commit:
    return commit(
        0 if read is None else read.head.revision,
        node(turn_id, None if read is None else read.head.leaf_node_id),
        session_id=session_id,
        turn_id=turn_id,
        checkpoint=draft(components={"execution_state": turn_id.encode() * 50}),
        usage=(spent(1),),
    )


if __name__ == "__main__":
    asyncio.run(commit_forever(*sys.argv[1:]))
