"""lash's own program: what a user of it would write, measured like that of any other contender."""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import Any

import lash
from benchmarks.peers.lash.agent import AGENT
from benchmarks.peers.lash.fleet import FLEET
from benchmarks.peers.lash.latency import LATENCY
from benchmarks.peers.lash.more import MORE
from benchmarks.peers.protocol import Answer, Question, Watch, all_turns, digest, serve
from lash.base.ids import new_id
from lash.model.session.commit import Append, Commit
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from lash.runtime.turns.messages import text_of
from tests.factories.session import MOMENT

_RUNNING = lash.ProcessFilter(status=lash.ProcessStatus.RUNNING)
_ROLES = {"user": Role.USER, "call": Role.ASSISTANT, "result": Role.ASSISTANT, "reply": Role.ASSISTANT}


async def chat(question: Question) -> Answer:
    """Commit turns of four messages, the sessions at once and the turns of each in order."""
    sessions, turns = question["sessions"], question["turns"]
    texts = all_turns(sessions, turns)
    watch = Watch()
    async with await lash.open(question["url"]) as storage:
        for session in sessions:
            await storage.sessions.create(f"session-{session}")
        watch.start(question)
        await asyncio.gather(*(_converse(storage, session, texts[session], watch) for session in sessions))
        watch.stop()
        return watch.answer(digests=[await _digest(storage, session) for session in sessions])


async def _converse(storage: lash.Storage, session: int, turns: list[dict[str, str]], watch: Watch) -> None:
    handle, leaf = storage.session(f"session-{session}"), None
    for number, texts in enumerate(turns):
        began = time.monotonic()
        nodes: list[Node] = []
        for part, text in texts.items():
            node_id = new_id()
            entry = MessageEntry(message=Message.of_text(node_id, _ROLES[part], text))
            nodes.append(Node(node_id=node_id, parent_node_id=leaf, timestamp=MOMENT, entry=entry))
            leaf = node_id
        await handle.commit(
            Commit(
                session_id=handle.session_id,
                expected_revision=number,
                turn_id=f"turn-{number}",
                graph=Append(nodes=tuple(nodes)),
            )
        )
        watch.note(number, began)


async def _digest(storage: lash.Storage, session: int) -> str:
    read = await storage.session(f"session-{session}").load()
    nodes = () if read is None else read.graph.nodes
    return digest(text_of(each.entry.message) for each in nodes if isinstance(each.entry, MessageEntry))


async def reopen(question: Question) -> Answer:
    """Open a storage and read the last twenty messages of a long session, then all of them."""
    # Other programs import what they need when they start; lash does when a storage is opened.
    importlib.import_module("lash.sqlite.storage")
    began = time.monotonic()
    async with await lash.open(question["url"]) as storage:
        handle = storage.session("session-0")
        tail = await handle.load(lash.model.ActivePath(last=20))
        assert tail is not None
        assert len(tail.graph.nodes) == 20
        last = time.monotonic()
        found = await _digest(storage, 0)
        return {"last_ms": (last - began) * 1e3, "all_ms": (time.monotonic() - last) * 1e3, "digests": [found]}


def _application(url: str, **options: Any) -> tuple[lash.App, Any, Any]:  # noqa: ANN401 (what App takes)
    app = lash.App(url, **options)

    @app.process
    async def ten_steps(ctx: lash.Context, seed: int, texts: list[str]) -> str:
        results = [await ctx.step(f"step-{number}", _produce, texts[number]) for number in range(10)]
        return digest([str(seed), *results])

    @app.process
    async def nothing(ctx: lash.Context, number: int) -> None:  # noqa: ARG001 (it does nothing)
        _done.append(number)

    return app, ten_steps, nothing


_done: list[int] = []


async def _produce(text: str) -> str:
    return text


async def steps(question: Question) -> Answer:
    """Run processes of ten steps, some of them at once."""
    runs: list[list[str]] = question["runs"]
    app, ten_steps, _ = _application(question["url"])
    watch, results = Watch(), dict[int, str]()
    numbers = iter(range(len(runs)))

    async def one_after_the_other() -> None:
        for number in numbers:
            began = time.monotonic()
            handle = await app.start(ten_steps, number, runs[number])
            results[number] = await handle.result()
            watch.note(number, began)

    async with app:
        watch.start()
        await asyncio.gather(*(one_after_the_other() for _ in range(question["callers"])))
        watch.stop()
    return watch.answer(results=[results[number] for number in range(len(runs))])


async def queue(question: Question) -> Answer:
    """Queue jobs that do nothing, then let one worker do them all."""
    sender, _, nothing = _application(question["url"], worker=False)
    watch = Watch()
    async with sender:
        begin = time.monotonic()
        for number in range(question["jobs"]):
            await sender.start(nothing, number)
        queued_s = time.monotonic() - begin
    worker, _, _ = _application(question["url"])
    _done.clear()
    watch.start()
    async with worker:
        while len(_done) < question["jobs"] or (await worker.storage.processes.list(_RUNNING, limit=1)).processes:
            await asyncio.sleep(0.005)
        watch.stop()
    return watch.answer(queued_s=queued_s, done=sorted(_done))


TASKS = {"chat": chat, "reopen": reopen, "steps": steps, "queue": queue, **LATENCY, **MORE, **FLEET, **AGENT}
serve(("apsw", "asyncpg"), TASKS, own={"lash": lash.__version__})
