"""A process that resolves the waits whose keys it reads from standard input.

``python -m tests.proof.concurrency.wait_resolver URL NAME`` prints ``ready`` once the storage is open. Each line
is the text of a key; it is resolved with the name, and the outcome is printed as JSON. ``make NAME`` prints the text
of the key of that name instead, of an operation.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

import lash


async def resolve_as_told(url: str, name: str) -> None:
    """Resolve the key on each line until the input ends."""
    async with await lash.open(url) as storage:
        _say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            verb, _, wait = line.strip().rpartition(" ")
            if verb == "make":
                scope = lash.model.OperationScope(operation_id="o")
                _say((await storage.waits.key(scope, lash.model.CustomIdentity(key=wait))).text)
            else:
                answer = await storage.waits.resolve(wait, lash.model.Resolved(value=name))
                _say(msgspec.json.encode(answer).decode())


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(resolve_as_told(*sys.argv[1:]))
