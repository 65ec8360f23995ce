"""``lash sessions``: conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lash.cli import pages
from lash.cli.command import Group, command, deletes, label_dict, limited
from lash.cli.ids import SESSION
from lash.cli.operator import operated
from lash.cli.output import Piece, json_line, one_line
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, moment, plain, plural, shortened, size, width_of

if TYPE_CHECKING:
    from lash.model.lease import ParkedTurn
    from lash.model.queue import Batch, DeadLetter
    from lash.model.session.message import Part
    from lash.model.session.node import Node
    from lash.model.session.session import (
        Retention,
        SessionFilter,
        SessionMeta,
        SessionOrder,
        SessionRead,
        SessionSummary,
    )
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("SESSION"),
    Column("NAME", stretch=True),
    Column("STATE", stretch=True, state=True),
    Column("REVISION", right=True),
    Column("USER MSG", right=True),
    Column("UPDATED", right=True),
    Column("FIRST MESSAGE", stretch=True),
)
_STATES: Final = ("running", "queued", "waiting", "idle")
_ORDERS: Final = ("created", "active")
_LAST: Final = 20
_FACT_WIDTH: Final = 14
"""Between the start of a fact's name and its text, without the colon."""


@click.group(cls=Group, lazy={"watch": "lash.cli.session_watch:watch"})
def sessions() -> None:
    """List, show, watch, draw, fork, move and remove sessions."""


@command(
    "ls",
    "lash sessions ls",
    "lash sessions ls --owner ada --label env=prod --order active",
    "lash sessions ls --state queued --no-limit --json",
    "lash sessions ls --search 'my money' --json",
    "lash sessions ls --prefix old- -q | xargs -r lash sessions rm --yes",
    group=sessions,
    names=True,
)
@click.option("--search", "text", metavar="TEXT", help="Only with these words in the first message or the labels.")
@click.option("--prefix", metavar="TEXT", help="Only ids that begin with this text.")
@click.option("--owner", help="Only sessions of this owner.")
@click.option(
    "--label",
    "labels",
    metavar="KEY=VALUE",
    multiple=True,
    callback=label_dict,
    help="Only with this label; repeatable.",
)
@click.option("--agent", help="Only sessions whose last turn this agent ran.")
@click.option("--state", type=click.Choice(_STATES), help="Only sessions in this state.")
@click.option("--fork-of", "source_session_id", metavar="SESSION", type=SESSION, help="Only forks of this session.")
@click.option("--order", type=click.Choice(_ORDERS), default="created", show_default=True, help="What to sort by.")
@click.option("--oldest-first", is_flag=True, help="Turn the order around.")
@limited
async def list_sessions(
    shell: Shell,
    limit: int,
    everything: bool,  # noqa: FBT001 (click's)
    order: str,
    oldest_first: bool,  # noqa: FBT001 (click's)
    source_session_id: str | None,
    **wanted: object,
) -> None:
    """List sessions, the last created first.

    --search finds sessions by the beginnings of words, in whatever case; all of them must be there. In a sealed storage
    it finds words of labels only.
    """
    from lash.base.shapes import convert
    from lash.model.session.session import SessionFilter, SessionOrder

    async with shell.storage() as storage:
        wanted["source_session_id"] = await SESSION.match_given(storage, source_session_id)
        fits = convert({name: value for name, value in wanted.items() if value is not None}, SessionFilter)
        fetch = session_pages(storage, fits, order=SessionOrder(order), oldest_first=oldest_first)
        found = await pages.first(fetch, shell, limit, everything=everything)
    begin = "no sessions yet; start one with: lash ask SESSION TEXT --agent NAME"
    nothing = begin if fits == SessionFilter() else "no sessions match"
    shell.table(_COLUMNS, found, _row, nothing=nothing, name=lambda each: each.meta.session_id)


def session_pages(
    storage: Storage,
    wanted: SessionFilter | None = None,
    *,
    order: SessionOrder | None = None,
    oldest_first: bool = False,
) -> pages.Fetch[SessionSummary]:
    from lash.model.session.session import SessionFilter, SessionOrder

    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[SessionSummary, ...], str | None]:
        page = await storage.sessions.list(
            wanted or SessionFilter(),
            order=order or SessionOrder.CREATED,
            oldest_first=oldest_first,
            with_state=True,
            limit=limit,
            cursor=cursor,
        )
        return page.sessions, page.next_cursor

    return fetch


def batch_pages(storage: Storage, session_id: str) -> pages.Fetch[Batch]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[Batch, ...], str | None]:
        page = await storage.queue.list(session_id, limit=limit, after_seq=int(cursor or 0))
        return page, str(page[-1].seq) if len(page) == limit else None

    return fetch


def dead_pages(storage: Storage, session_id: str | None, prefix: str | None = None) -> pages.Fetch[DeadLetter]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[DeadLetter, ...], str | None]:
        after = None if cursor is None else int(cursor)
        page = await storage.queue.dead(session_id=session_id, prefix=prefix, limit=limit, after=after)
        return page, str(page[-1].position) if len(page) == limit else None

    return fetch


def _row(session: SessionSummary) -> tuple[str, ...]:
    return (
        session.meta.session_id,
        session.meta.name,
        "-" if session.state is None else _state(session.state.value, session.waiting_for),
        str(session.revision),
        str(session.user_message_count),
        age(session.updated_at_ms),
        session.first_user_message,
    )


def _state(state: str, waiting_for: str | None) -> str:
    return state if waiting_for is None else f"{state} for {waiting_for}"


@command(
    "show",
    "lash sessions show support-42",
    "lash sessions show support-42 --last 3 -o json",
    group=sessions,
    names=True,
)
@click.argument("session_id", metavar="SESSION", type=SESSION)
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", default=_LAST, show_default=True, help="Show the last N nodes."
)
@click.option("--all", "everything", is_flag=True, help="Show the whole active path.")
async def show(shell: Shell, session_id: str, last: int, everything: bool) -> None:  # noqa: FBT001 (click's)
    """Show a session: its head, its worker, its queue and its last messages."""
    from lash.model.session.session import ActivePath

    async with shell.storage() as storage:
        session_id = await SESSION.resolve(storage, session_id)
        session = storage.session(session_id)
        meta = await session.meta()
        if shell.names:
            shell.line(meta.session_id)
            return
        read = await session.load(ActivePath(last=None if everything else last))
        holder = await storage.leases.holder(session_id)
        parked = await storage.leases.parked(session_id)
        queued = await pages.count(batch_pages(storage, session_id))
        dead = await pages.count(dead_pages(storage, session_id))
    if shell.json:
        # The token of the lease is left out: with it a reader could act as the worker.
        owner = None if holder is None else {"owner_id": holder.owner.owner_id, "expires_at_ms": holder.expires_at_ms}
        shell.value(
            {
                "meta": meta,
                "head": None if read is None else read.head,
                "usage": () if read is None else read.usage,
                "lease": owner,
                "parked": parked,
                "queued": queued,
                "dead": dead,
                "nodes": () if read is None else read.graph.nodes,
            }
        )
        return
    held = "-" if holder is None else f"{holder.owner.owner_id}, until {moment(holder.expires_at_ms)}"
    facts = [
        *_facts(meta, read),
        ("worker", held),
        *_parked_facts(parked),
        ("queued", str(queued)),
        ("dead letters", str(dead)),
    ]
    width = max(len(name) for name, _ in facts) + 2
    shell.lines(
        (Piece(f"{name}:", "heading"), Piece(" " * (width - len(name)) + one_line(text))) for name, text in facts
    )
    for node in () if read is None else read.graph.nodes:
        shell.line()
        shell.line((Piece(speaker(node), "heading"), Piece(f"  {node.node_id}")))
        shell.text(content(node))


def _facts(meta: SessionMeta, read: SessionRead | None) -> list[tuple[str, str]]:
    facts = [
        ("session", meta.session_id),
        ("name", meta.name or "-"),
        ("relation", relation(meta)),
        ("created", moment(meta.created_at_ms)),
        *_own_facts(meta),
    ]
    if read is None:
        return [*facts, ("revision", "no commit yet")]
    spent = ", ".join(f"{entry.usage.total:,} by {entry.source} ({entry.model})" for entry in read.usage)
    return [
        *facts,
        ("revision", str(read.head.revision)),
        ("head", read.head.leaf_node_id or "-"),
        ("nodes", str(read.head.node_count)),
        ("updated", moment(read.head.updated_at_ms)),
        ("tokens", spent or "none"),
    ]


def _own_facts(meta: SessionMeta) -> list[tuple[str, str]]:
    """Return the facts that only some sessions have."""
    labels = ", ".join(f"{key}={value}" for key, value in meta.labels.items())
    expiry = "" if meta.expires_at_ms is None else moment(meta.expires_at_ms)
    metadata = json_line(meta.metadata) if meta.metadata else ""
    facts = (
        ("owner", meta.owner or ""),
        ("labels", labels),
        ("metadata", metadata),
        ("expires", expiry),
        ("checkpoints", "" if meta.retention is None else _kept(meta.retention)),
    )
    return [(name, text) for name, text in facts if text]


def _kept(retention: Retention) -> str:
    if retention.keep is None:
        return "all are kept"
    return "only the newest is kept" if retention.keep == 1 else f"the last {retention.keep:,} are kept"


def _parked_facts(parked: ParkedTurn | None) -> list[tuple[str, str]]:
    """Return what the parked turn of a session waits for, and until when; nothing if it has none."""
    if parked is None:
        return []
    until = "" if parked.until_ms is None else f", until {moment(parked.until_ms)}"
    return [("waiting for", f"{parked.waiting_for}{until}")]


def relation(meta: SessionMeta) -> str:
    """Return where a session comes from."""
    from lash.model.session.session import ChildRelation, ForkRelation

    match meta.relation:
        case ForkRelation(source_session_id=source, node_id=node_id):
            return f"fork of {source} at {node_id or 'its beginning'}"
        case ChildRelation(parent_session_id=parent):
            return f"child of {parent}"
    return "root"


def speaker(node: Node) -> str:
    """Return the author of a node."""
    from lash.model.session.node import MessageEntry

    return node.entry.message.role.value if isinstance(node.entry, MessageEntry) else node.kind.replace(":", " ", 1)


def content(node: Node) -> str:
    """Return the text of a node."""
    from lash.model.session.node import BytesEntry, MessageEntry, PluginEntry, ProtocolEntry

    match node.entry:
        case MessageEntry(message=message):
            return "\n".join(_part(part) for part in message.parts)
        case PluginEntry(body=body):
            return json_line(body)
        case ProtocolEntry(payload=payload):
            return json_line(payload)
        case BytesEntry(content=found):
            return f"[{len(found):,} bytes]"
    return ""


def _part(part: Part) -> str:
    """Return a part as text; a tool call and its result begin with the name of the tool."""
    text = part.content or f"[{part.kind.value}]"
    return text if part.tool_name is None else f"{part.tool_name} {text}"


@command("tree", "lash sessions tree support-42", "lash sessions tree support-42 -q", group=sessions, names=True)
@click.argument("session_id", metavar="SESSION", type=SESSION)
async def tree(shell: Shell, session_id: str) -> None:
    """Draw the conversation graph with its branches; the active path is marked and goes straight down.

    Below the first node of a turn are the steps that the turn ran, until the record of the turn is pruned.
    """
    from lash.cli.tree import ASCII, LINES, render, tree_lines
    from lash.cli.turn import read_turns, step_lines, turn_of, turns_of
    from lash.model.session.session import FullGraph

    async with shell.storage() as storage:
        session_id = await SESSION.resolve(storage, session_id)
        session = storage.session(session_id)
        meta = await session.meta()
        read = await session.load(FullGraph())
        nodes = () if read is None else read.graph.nodes
        turns = {} if shell.names else await read_turns(storage, session_id, turns_of(nodes))
    if read is None or not nodes:
        if not shell.json and not shell.names:
            shell.note(f"session {session_id!r} has no nodes yet")
        return
    if shell.names:
        shell.lines(line.node.node_id for line in tree_lines(read.graph))
        return
    signs = LINES if shell.draws_lines else ASCII
    if shell.json:
        for line in tree_lines(read.graph):
            fields = {"depth": line.depth, "active": line.active, "head": line.leaf, "turn_id": turn_of(line.node)}
            turn = turns.pop(turn_of(line.node) or "", None)
            trace = {} if turn is None else {"trace": plain(turn.trace)}
            shell.value({**_node_fields(line.node), **fields, **trace})
        return
    shell.line((Piece(f"{session_id}  revision {read.head.revision}  {relation(meta)}", "heading"),))
    for line in tree_lines(read.graph, signs):
        room = None if shell.width is None else shell.width - width_of(line.lead) - 2 - (9 if line.leaf else 0)
        shell.line(render(line, lambda node, room=room: _described(node, room), signs))  # type: ignore[misc]
        turn = turns.pop(turn_of(line.node) or "", None)
        if turn is not None and turn.trace is not None:
            shell.lines(step_lines(turn.trace, f"{line.lead}{signs.beside}  "))


def _node_fields(node: Node) -> dict[str, object]:
    return {
        "node_id": node.node_id,
        "parent_node_id": node.parent_node_id,
        "timestamp": node.timestamp,
        "speaker": speaker(node),
        "text": content(node),
    }


def _described(node: Node, room: int | None) -> str:
    text = one_line(f"{node.node_id}  {speaker(node)}: {content(node)}")
    return text if room is None else shortened(text, max(room, 1))


@command(
    "fork",
    "lash sessions fork support-42 what-if",
    "lash sessions fork support-42 shorter --node ask --name 'A shorter answer'",
    group=sessions,
    names=True,
)
@click.argument("source", metavar="SOURCE", type=SESSION)
@click.argument("new", metavar="NEW")
@click.option("--node", "node_id", metavar="NODE", help="Continue from this node.  [default: the head's]")
@click.option("--name", help="The name of the new session.")
@operated
async def fork(shell: Shell, source: str, new: str, node_id: str | None, name: str | None, by: str) -> None:
    """Create a session NEW that continues from a node of SOURCE; later changes of either are invisible to the other."""
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        source = await SESSION.resolve(storage, source)
        async with acting(storage, by, "fork", new, session_id=source):
            made = await storage.sessions.fork(source, new, node_id=node_id, name=name)
    said = f"forked {source} as {new}" if made.created else f"{new} is already a fork of {source}"
    shell.done(said, made, new)


@command("rm", "lash sessions rm support-42 --dry-run", "lash sessions rm support-42 --yes", group=sessions)
@click.argument("session_ids", metavar="SESSION...", nargs=-1, required=True, type=SESSION)
@deletes
@operated
async def remove(
    shell: Shell,
    session_ids: tuple[str, ...],
    dry_run: bool,  # noqa: FBT001 (click's)
    yes: bool,  # noqa: FBT001 (click's)
    by: str,
) -> None:
    """Delete sessions with all they own: nodes, checkpoints, queued work, attachments, triggers and schedules.

    Forks of them stay whole, and processes that they started go on.
    """
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        wanted = await SESSION.resolve_all(storage, session_ids)
        if dry_run:
            for session_id in wanted:
                await _tell_what_goes(shell, storage, session_id)
            return
        shell.confirm(f"Delete {plural(len(wanted), 'session')} ({_named(wanted)}) permanently?", yes=yes)
        for session_id in wanted:
            async with acting(storage, by, "delete", session_id, session_id=session_id):
                deleted = await storage.sessions.delete(session_id)
            said = f"deleted {session_id}" if deleted else f"{session_id} was deleted meanwhile"
            shell.done(said, {"session_id": session_id, "deleted": deleted})


async def _tell_what_goes(shell: Shell, storage: Storage, session_id: str) -> None:
    head = await storage.session(session_id).head()
    queued = await pages.count(batch_pages(storage, session_id))
    nodes = 0 if head is None else head.node_count
    holder = await storage.leases.holder(session_id)
    fields = {"session_id": session_id, "deleted": False, "nodes": nodes, "queued": queued}
    busy = "" if holder is None else f"; {holder.owner.owner_id} works on it"
    said = f"would delete {session_id}: {plural(nodes, 'node')}, {plural(queued, 'queued batch', 'queued batches')}"
    shell.done(said + busy, plain(fields))


def _named(session_ids: list[str]) -> str:
    return ", ".join(repr(each) for each in session_ids)


@command(
    "export",
    "lash sessions export support-42 support-42.jsonl",
    "lash sessions export support-42 whole.jsonl --with-queue",
    group=sessions,
)
@click.argument("session_id", metavar="SESSION", type=SESSION)
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--with-queue", is_flag=True, help="Include queued batches, claimed or not.")
async def export(shell: Shell, session_id: str, target: str, with_queue: bool) -> None:  # noqa: FBT001 (click's)
    """Write a session with its branches, state and attachments to a new file of JSON lines; - is standard output.

    Others may go on working with it. docs/export-format.md describes the file.
    """
    from lash.cli.transfer import export_to

    exported = await export_to(shell, session_id, target, with_queue=with_queue)
    if target != "-":
        what = f"{plural(exported.counts.nodes, 'node')}, {size(exported.bytes)}"
        shell.done(f"exported {exported.session_id} to {target}: {what}", exported)


@command(
    "import",
    "lash sessions export support-42 support-42.jsonl && lash sessions import support-42.jsonl --as support-43",
    group=sessions,
    names=True,
)
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--as", "session_id", metavar="SESSION", help="The id of the new session.  [default: the one in the file]"
)
async def import_(shell: Shell, source: str, session_id: str | None) -> None:
    """Import a session from a file of `lash sessions export`, whole or not at all.

    Idempotent. Exits with code 4 if another session has the id.
    """
    from lash.cli.transfer import import_from

    imported = await import_from(shell, source, session_id)
    verb = "imported" if imported.created else "there already:"
    said = f"{verb} {imported.session_id}, {plural(imported.counts.nodes, 'node')}"
    shell.done(said, imported, imported.session_id)
