"""A short tour of what works, on a throw-away SQLite file or on the storage that you name.

``python -m lash.demo`` or ``python -m lash.demo --url postgresql://…``. Every claim is checked against the database
before it is printed; the exit code is 1 if one is false.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import lash

_SESSION = "demo-" + datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
_NODES_AFTER_RACE = 3
_USER_MESSAGES = 2


class ClaimFailedError(Exception):
    """Something that the tour was about to claim is not so."""


def main(arguments: list[str] | None = None) -> int:
    """Run the tour and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lash.demo", description="A short tour of what lash does.")
    parser.add_argument(
        "--url", help="the storage to use, for example sqlite:///demo.db; by default a file that is removed again"
    )
    url: str | None = parser.parse_args(arguments).url
    try:
        if url is not None:
            asyncio.run(_tour(url))
        else:
            with tempfile.TemporaryDirectory(prefix="lash-demo-") as folder:
                asyncio.run(_tour(f"sqlite:///{Path(folder) / 'demo.db'}"))
    except ClaimFailedError as failure:
        print(f"\n  FALSE: {failure}", file=sys.stderr)
        return 1
    except lash.LashError as error:
        print(f"lash: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


async def _tour(url: str) -> None:
    async with await lash.open(url) as here, await lash.open(url) as there:
        _title("Two writers on one storage")
        created = await here.sessions.create(_SESSION, name="A trip to Rome", model="demo-model")
        _say(f"session {_SESSION} exists; the first commit must expect revision {created.revision}")
        first = await _first_turn(here, created.revision)
        await _race(here, there, first)
        await _repeat(there)
        await _branch(there)
        await _lease(here, there)
        await _show(there)


async def _first_turn(storage: lash.Storage, revision: int) -> lash.CommitResult:
    _title("A turn is one commit: messages, state and tokens together")
    nodes = (_said("ask", None, "Plan a weekend in Rome."), _said("plan", "ask", "Day one: the Forum.", by="assistant"))
    result = await storage.session(_SESSION).commit(_turn("turn-1", revision, nodes))
    read = await _load(storage)
    _claim(read.head.revision == result.revision and len(read.graph.nodes) == len(nodes), "the turn was saved whole")
    _say(f"revision {result.revision}: {len(nodes)} messages, 1 state component, {_tokens(read)} tokens")
    return result


async def _race(here: lash.Storage, there: lash.Storage, first: lash.CommitResult) -> None:
    _title("Two writers answer the same revision at once: one lands, the other is told")
    outcomes = await asyncio.gather(
        here.session(_SESSION).commit(_turn("turn-2", first.revision, (_said("slow", "plan", "Add the Vatican."),))),
        there.session(_SESSION).commit(_turn("turn-2b", first.revision, (_said("food", "plan", "Add a dinner."),))),
        return_exceptions=True,
    )
    landed = [each for each in outcomes if isinstance(each, lash.CommitResult)]
    refused = [each for each in outcomes if isinstance(each, lash.RevisionConflict)]
    read = await _load(here)
    _claim(len(landed) == len(refused) == 1, "exactly one of two competing commits landed")
    _claim(
        read.head.revision == landed[0].revision and read.head.node_count == _NODES_AFTER_RACE,
        "the refused one left nothing behind",
    )
    _say(f"landed:  revision {landed[0].revision}")
    _say(f"refused: {refused[0]}")


async def _repeat(storage: lash.Storage) -> None:
    _title("A repeated commit is recognised")
    before = await _load(storage)
    nodes = (_said("ask", None, "Plan a weekend in Rome."), _said("plan", "ask", "Day one: the Forum.", by="assistant"))
    again = await storage.session(_SESSION).commit(_turn("turn-1", 0, nodes))
    after = await _load(storage)
    _claim(after == before, "a repeated commit changes nothing")
    _say(f"turn-1 once more: the first result, revision {again.revision}; still {_tokens(after)} tokens")
    try:
        await storage.session(_SESSION).commit(_turn("turn-1", 0, (_said("x", None, "Something else."),)))
    except lash.TurnConflict as conflict:
        _say(f"other content under the same turn id: {conflict}")
    else:
        raise ClaimFailedError("other content under a known turn id is refused")


async def _branch(storage: lash.Storage) -> None:
    _title("History is a tree: edit a message, keep both branches")
    head = (await _load(storage)).head
    nodes = (_said("edit", "ask", "Day one: Trastevere instead.", by="assistant"),)
    await storage.session(_SESSION).commit(_turn("turn-3", head.revision, nodes))
    read = await _load(storage)
    path = [node.node_id for node in read.graph.nodes]
    _claim(path == ["ask", "edit"], "the active path follows the new branch")
    _say("the active path is now " + " → ".join(path))


async def _lease(here: lash.Storage, there: lash.Storage) -> None:
    _title("A lease says who may work; its fence says who still may")
    mine, other = lash.current_owner("worker-1"), lash.current_owner("worker-2")
    held = await here.leases.claim(_SESSION, mine, ttl_ms=30_000)
    busy = await there.leases.claim(_SESSION, other, ttl_ms=30_000)
    _claim(isinstance(held, lash.Acquired) and isinstance(busy, lash.Busy), "a held lease is refused to others")
    if isinstance(held, lash.Acquired) and isinstance(busy, lash.Busy):
        _say(f"worker-1 holds it under fencing number {held.lease.fencing}")
        _say(f"worker-2 is told that {busy.holder.owner.owner_id} holds it")
        await here.leases.release(held.lease.fence)
        try:
            revision = (await _load(here)).head.revision
            await here.session(_SESSION).commit(_turn("turn-4", revision, (), fence=held.lease.fence))
        except lash.LeaseLost as lost:
            _say(f"a commit under the released fence: {lost}")
        else:
            raise ClaimFailedError("a released fence is refused")


async def _show(storage: lash.Storage) -> None:
    _title("The whole conversation")
    read = await storage.session(_SESSION).load(lash.FullGraph())
    if read is None:
        raise ClaimFailedError("the session can be loaded")
    for line in draw_tree(read.graph):
        _say(line)
    page = await storage.sessions.list(limit=1)
    listed = page.sessions[0]
    is_listed = listed.meta.session_id == _SESSION and listed.user_message_count == _USER_MESSAGES
    _claim(is_listed, "the list shows the session")
    _say("")
    _say(f"in the list: {listed.meta.name!r}, begun with {listed.first_user_message!r}")
    for entry in read.usage:
        _say(f"tokens of {entry.source} on {entry.model}: {entry.usage.total}")


def draw_tree(graph: lash.Graph) -> Iterator[str]:
    """Draw a conversation graph, one line a node; the leaf of the active path is marked."""
    children: dict[str | None, list[lash.Node]] = {}
    for node in graph.nodes:
        children.setdefault(node.parent_node_id, []).append(node)
    waiting = [(node, "", last) for node, last in _with_last(children.get(None, []))]
    while waiting:
        node, indent, is_last = waiting.pop(0)
        mark = "  ← leaf" if node.node_id == graph.leaf_node_id else ""
        yield f"{indent}{'└─' if is_last else '├─'} {_line(node)}{mark}"
        deeper = indent + ("   " if is_last else "│  ")
        waiting = [(child, deeper, last) for child, last in _with_last(children.get(node.node_id, []))] + waiting


def _with_last(nodes: list[lash.Node]) -> Iterator[tuple[lash.Node, bool]]:
    for place, node in enumerate(nodes, start=1):
        yield node, place == len(nodes)


def _line(node: lash.Node) -> str:
    if not isinstance(node.entry, lash.MessageEntry):
        return node.node_id
    text = " ".join(part.content for part in node.entry.message.parts)
    return f"{node.node_id} ({node.entry.message.role.value}): {text}"


def _said(node_id: str, parent: str | None, text: str, *, by: str = "user") -> lash.Node:
    message = lash.Message.text(node_id, lash.Role(by), text)
    return lash.Node(
        node_id=node_id,
        parent_node_id=parent,
        timestamp=datetime.now(UTC),
        entry=lash.MessageEntry(message=message),
    )


def _turn(
    turn_id: str, revision: int, nodes: tuple[lash.Node, ...], *, fence: lash.LeaseFence | None = None
) -> lash.Commit:
    return lash.Commit(
        session_id=_SESSION,
        expected_revision=revision,
        turn_id=turn_id,
        fence=fence,
        graph=lash.Append(nodes=nodes) if nodes else lash.Unchanged(),
        checkpoint=lash.CheckpointDraft(
            turn_state=lash.TurnState(turn_index=revision + 1),
            components={"tool_state": b'{"tools": ["search", "book"]}'},
        ),
        usage=(
            lash.UsageEntry(
                source="turn", model="demo-model", usage=lash.TokenUsage(input_tokens=120, output_tokens=40)
            ),
        ),
    )


async def _load(storage: lash.Storage) -> lash.SessionRead:
    read = await storage.session(_SESSION).load()
    if read is None:
        raise ClaimFailedError("the session has been committed")
    return read


def _tokens(read: lash.SessionRead) -> int:
    return sum(entry.usage.total for entry in read.usage)


def _claim(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not holds:
        raise ClaimFailedError(what)


def _title(text: str) -> None:
    print(f"\n{text}")


def _say(text: str) -> None:
    print(f"  {text}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
