"""A process that forks, commits to and deletes a few sessions at random, against others that do the same.

``python -m tests.proof.concurrency.forker URL SEED ROUNDS SESSION...`` prints how often each operation succeeded.
"""

from __future__ import annotations

import asyncio
import collections
import random
import sys

import lash
from tests.factories.session import commit, draft, node

_LOST_RACES = (
    lash.SessionDeleted,
    lash.SessionNotFound,
    lash.SessionExists,
    lash.RevisionConflict,
    lash.errors.GraphShared,
    lash.errors.GraphConflict,
)


async def fork_about(url: str, seed: str, rounds: int, session_ids: list[str]) -> collections.Counter[str]:
    """Run random operations; losing to another process is no failure, anything else is."""
    chance = random.Random(seed)
    done: collections.Counter[str] = collections.Counter()
    async with await lash.open(url) as storage:
        for number in range(rounds):
            operation = chance.choice((_fork, _fork, _delete, _delete, _append, _append, _replace))
            try:
                done[operation.__name__] += await operation(storage, session_ids, chance, f"{seed}-{number}")
            except _LOST_RACES:
                continue
    return done


async def _fork(storage: lash.Storage, session_ids: list[str], chance: random.Random, _name: str) -> bool:
    source, new = chance.sample(session_ids, 2)
    read = await storage.session(source).load()
    if read is None or not read.graph.nodes:
        return False
    chosen = chance.choice(read.graph.nodes)
    try:
        return (await storage.sessions.fork(source, new, node_id=chosen.node_id)).created
    except lash.errors.NodeNotFound:
        return False


async def _delete(storage: lash.Storage, session_ids: list[str], chance: random.Random, _name: str) -> bool:
    return await storage.sessions.delete(chance.choice(session_ids[1:]))


async def _append(storage: lash.Storage, session_ids: list[str], chance: random.Random, name: str) -> bool:
    session = storage.session(chance.choice(session_ids))
    read = await session.load()
    if read is None:
        return False
    parent = chance.choice(read.graph.nodes).node_id if read.graph.nodes else None
    checkpoint = draft(components={"k": name.encode() * 50})
    await session.commit(
        commit(read.head.revision, node(name, parent), session_id=session.session_id, checkpoint=checkpoint)
    )
    return True


async def _replace(storage: lash.Storage, session_ids: list[str], chance: random.Random, name: str) -> bool:
    session = storage.session(chance.choice(session_ids))
    head = await session.head()
    if head is None:
        return False
    graph = lash.model.ReplaceFull(nodes=(node(name),), leaf_node_id=name, replaced_node_count=head.node_count)
    await session.commit(commit(head.revision, session_id=session.session_id, graph=graph))
    return True


if __name__ == "__main__":
    counted = asyncio.run(fork_about(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
    sys.stdout.write(" ".join(f"{name}={count}" for name, count in sorted(counted.items())) + "\n")
