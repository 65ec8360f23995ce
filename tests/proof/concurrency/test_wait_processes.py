"""Waits between real processes: one resolution for all, whichever process resolves or is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence

import pytest

import lash
from tests.backends import TESTS_FOLDER
from tests.base.waiting_kit import changes_of
from tests.factories.wait import YES, key_of, parked, placed, soon, waiting

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


class Resolver:
    """Another process that resolves the given keys."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self.child = child
        self._stdin, self._stdout = child.stdin, child.stdout

    def tell(self, lines: Sequence[str]) -> None:
        self._stdin.write("".join(line + "\n" for line in lines).encode())

    async def read_line(self) -> str:
        return (await soon(self._stdout.readline())).decode().strip()


@contextlib.asynccontextmanager
async def resolvers(url: str, *names: str) -> AsyncIterator[list[Resolver]]:
    """Run one process for each name, and end them all afterwards."""
    children = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.proof.concurrency.wait_resolver", url, name),
            cwd=TESTS_FOLDER.parent,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for name in names
    ]
    try:
        started = [Resolver(child) for child in children]
        for each in started:
            assert await each.read_line() == "ready"
        yield started
    finally:
        for child in children:
            if child.returncode is None:
                child.kill()
            await child.wait()


async def test_two_processes_agree_on_each_resolution(backend_url: str) -> None:
    """Both resolve the same 50 waits at once; for each, one is accepted and the other gets that resolution."""
    async with await lash.open(backend_url) as storage, resolvers(backend_url, "a", "b") as (first, second):
        await placed(storage)
        keys = [await key_of(storage, str(number)) for number in range(50)]
        texts = [key.text for key in keys]
        first.tell(texts)
        second.tell(texts)
        for key in keys:
            answers = {"a": json.loads(await first.read_line()), "b": json.loads(await second.read_line())}
            (winner,) = [name for name, answer in answers.items() if answer["status"] == "accepted"]
            (told,) = [answer for answer in answers.values() if answer["status"] != "accepted"]
            assert told == {"status": "already_resolved", "terminal": {"status": "ok", "value": winner}}
            assert await storage.waits.wait(key) == lash.model.Resolved(value=winner)


async def test_another_process_wakes_who_waits(backend_url: str) -> None:
    """A resolution from another process reaches the waiters here every time, without a poll."""
    async with await lash.open(backend_url) as storage, resolvers(backend_url, "a") as (other,):
        changes_of(storage)._poll_s = 3_600
        await placed(storage)
        for number in range(5):
            key = await key_of(storage, str(number))
            task = waiting(storage, key)
            await parked(storage, key)
            other.tell([key.text])
            assert await soon(task) == lash.model.Resolved(value="a")


async def test_processes_that_are_all_the_first_share_a_secret(backend_url: str) -> None:
    """The secret is made once, however many processes need it first at the same moment."""
    names = ("a", "b", "c", "d")
    async with await lash.open(backend_url) as storage, resolvers(backend_url, *names) as others:
        for other in others:
            other.tell(["make k"])
        texts = {await other.read_line() for other in others}
        assert len(texts) == 1
        assert await storage.waits.resolve(texts.pop(), YES) == lash.model.Accepted()


async def test_what_was_acknowledged_survives_a_kill(backend_url: str) -> None:
    """The resolver is killed right after its call returned; later waiters get its value."""
    async with await lash.open(backend_url) as storage:
        await placed(storage)
        for number in range(3):
            key = await key_of(storage, str(number))
            async with resolvers(backend_url, "a") as (other,):
                other.tell([key.text])
                assert json.loads(await other.read_line()) == {"status": "accepted"}
                other.child.kill()
            assert await soon(storage.waits.wait(key)) == lash.model.Resolved(value="a")
