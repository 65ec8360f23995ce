"""One session: the conversation, its graph, its queue, the running turn, usage and state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import htpy as h

from lash.cli.queue import session_queue_pages
from lash.cli.text import plural, size
from lash.cli.turn import read_turns, turns_of
from lash.errors import InvalidInput
from lash.model.attachment import AttachmentEntry
from lash.model.lease import Lease
from lash.model.queue import QueuedBatch
from lash.model.session.message import Part, PartKind
from lash.model.session.node import ErasedEntry, MessageEntry, Node
from lash.model.session.session import (
    ActivePath,
    ChildRelation,
    ForkRelation,
    FullGraph,
    SessionFilter,
    SessionHead,
    SessionMeta,
    SessionPage,
    SessionRead,
    SessionSummary,
)
from lash.model.session.trace import TurnRecord, TurnTrace
from lash.model.value import JSON
from lash.runtime.turns.handle import SessionHandle
from lash.web.forms import FORM_KEY
from lash.web.graph import anchor, drawing, laid_out
from lash.web.pages.queue import queue_table
from lash.web.pages.sessions import session_table
from lash.web.show import act, ago, badge, block, facts, json_block, line, link, name_link, table
from lash.web.timeline import timeline, trace_bars
from lash.web.view import Visit, WebPage
from lash.web.words import spoken

_MESSAGES: Final = 100
"""How many nodes of the path a page shows."""
_MOST_DRAWN: Final = 400
"""How many nodes the drawing has at most."""
_MOST_READ: Final = 2_000
"""Graphs with more nodes are drawn from the shown path alone: reading them takes too long for a page."""
_QUEUED: Final = 50
_FORKS: Final = 20
"""How many forks are shown, the newest."""
_TURNS: Final = 10
"""How many turns are drawn."""


async def session(visit: Visit) -> WebPage:
    """A fixed number of reads, however long the session is."""
    session_id = visit.parameter("id")
    if not session_id:
        raise InvalidInput("expected the id of a session in the address, got none")
    stored = visit.storage.session(session_id)
    meta, head = await asyncio.gather(stored.meta(), stored.head())
    scope = ActivePath(leaf_node_id=visit.parameter("leaf") or None, last=_MESSAGES)
    read, whole, holder, words = await asyncio.gather(
        stored.load(scope),
        _graph(visit, session_id, head),
        visit.storage.leases.holder(session_id),
        spoken(visit.storage, session_id),
    )
    (queued, _), files, state, forks = await asyncio.gather(
        session_queue_pages(visit.storage, session_id, None)(_QUEUED, None),
        visit.storage.attachments.list(session_id, limit=_QUEUED),
        SessionHandle(visit.storage, session_id).state(),
        visit.storage.sessions.list(
            SessionFilter(source_session_id=session_id), with_state=True, with_counts=True, limit=_FORKS
        ),
    )
    nodes = () if read is None else read.graph.nodes
    turns = await read_turns(visit.storage, session_id, turns_of(nodes)) if nodes else {}
    pieces = (
        _facts(visit, meta, head, holder),
        _chat(visit, session_id, nodes, words),
        _turns(nodes, turns),
        _tree(nodes if whole is None else whole.graph.nodes, nodes, forks.sessions),
        _forks(visit, session_id, forks),
        _queue(visit, queued),
        _compose(visit, session_id),
        _rest(visit, session_id, read, files.entries, state),
    )
    return WebPage(meta.name or session_id, pieces)


async def _graph(visit: Visit, session_id: str, head: SessionHead | None) -> SessionRead | None:
    """Return the whole graph if it is small enough to be drawn from one read."""
    if head is None or head.node_count > _MOST_READ:
        return None
    return await visit.storage.session(session_id).load(FullGraph())


def _facts(visit: Visit, meta: SessionMeta, head: SessionHead | None, holder: Lease | None) -> h.Element:
    relation: h.Node = None
    if isinstance(meta.relation, ForkRelation):
        relation = ("fork of ", name_link("session", meta.relation.source_session_id))
    elif isinstance(meta.relation, ChildRelation):
        relation = ("started by ", name_link("session", meta.relation.parent_session_id))
    labels = [h.span(".label")[line(f"{key}={value}", 80)] for key, value in sorted(meta.labels.items())]
    running = None if holder is None else (badge("running"), f" by {line(holder.owner.owner_id, 60)}")
    return h.section("#facts", aria_label="Facts")[
        facts(
            (
                ("id", h.code[line(meta.session_id)]),
                ("state", running or badge("idle")),
                ("relation", relation),
                ("owner", line(meta.owner) if meta.owner else None),
                ("labels", labels or None),
                ("revision", None if head is None else f"{head.revision:,}"),
                ("nodes", None if head is None else f"{head.node_count:,}"),
                ("created", ago(meta.created_at_ms)),
                ("last commit", None if head is None else ago(head.updated_at_ms)),
                ("expires", None if meta.expires_at_ms is None else ago(meta.expires_at_ms)),
            )
        ),
        visit.may_act
        and holder is not None
        and act("cancel-turn", "Cancel the turn", {"session": meta.session_id}, danger=True),
    ]


def _chat(visit: Visit, session_id: str, nodes: Sequence[Node], words: str) -> h.Element:
    first = nodes[0].parent_node_id if nodes else None
    older = h.p(".more")[h.a(href=link("session", id=session_id, leaf=first))["Earlier messages"]] if first else None
    running = (
        words
        and h.article("#words.message.assistant.live", aria_live="polite")[
            h.header["running now"], h.pre[block(visit.redact(words))]
        ]
    )
    shown = [_message(visit, session_id, node) for node in nodes]
    return h.section("#chat", aria_label="Conversation")[
        h.h2["Conversation"],
        older,
        shown or (None if words else h.p(".empty")["No messages were committed yet."]),
        running,
    ]


def _message(visit: Visit, session_id: str, node: Node) -> h.Element:
    entry = node.entry
    fork = visit.may_act and act("fork", "Fork here", {"session": session_id, "node": node.node_id})
    if not isinstance(entry, MessageEntry):
        body: h.Node = h.p(".quiet")["erased"] if isinstance(entry, ErasedEntry) else json_block(entry, visit.redact)
        return _article(node, "other", node.kind, body, fork)
    role = entry.message.role.value
    parts = [_part(visit, session_id, part) for part in entry.message.parts]
    return _article(node, role, role, parts, fork)


def _article(node: Node, tone: str, title: str, body: h.Node, fork: h.Node) -> h.Element:
    return h.article(id=anchor(node.node_id), class_=["message", tone])[
        h.header[h.b[line(title, 60)], " ", ago(int(node.timestamp.timestamp() * 1_000)), fork],
        body,
    ]


def _part(visit: Visit, session_id: str, part: Part) -> h.Node:
    if part.attachment is not None:
        ref = part.attachment
        address = link("attachment", session=session_id, id=ref.id)
        return h.p[h.a(href=address, download=True)[line(ref.label or ref.id, 60)], f" {size(ref.byte_len)}"]
    text = block(visit.redact(part.content))
    if part.kind in (PartKind.TEXT, PartKind.PROSE):
        return h.pre(".text")[text]
    title = " ".join(each for each in (part.kind.value.replace("_", " "), part.tool_name) if each)
    return h.details[h.summary[line(title, 80)], h.pre[text]]


def _tree(nodes: Sequence[Node], active: Sequence[Node], forks: Sequence[SessionSummary]) -> h.Element:
    shown = nodes[-_MOST_DRAWN:]
    cut = f"The newest {_MOST_DRAWN:,} of {len(nodes):,} nodes." if len(nodes) > _MOST_DRAWN else None
    return h.section("#tree")[
        h.h2["Graph"],
        h.div(".scroll", tabindex="0", role="region", aria_label="Graph")[
            drawing(laid_out(shown, active), _forked(forks))
        ]
        if shown
        else h.p(".empty")["Empty."],
        cut and h.p(".quiet")[cut],
    ]


def _forked(forks: Sequence[SessionSummary]) -> Mapping[str, str]:
    """Return the newest fork at each node."""
    relations = ((fork.meta.session_id, fork.meta.relation) for fork in reversed(forks))
    return {
        relation.node_id: session_id
        for session_id, relation in relations
        if isinstance(relation, ForkRelation) and relation.node_id is not None
    }


def _forks(visit: Visit, session_id: str, forks: SessionPage) -> h.Element:
    if not forks.sessions:
        return h.section("#forks", hidden=True)
    return h.section("#forks")[
        h.h2["Forks"],
        session_table(visit, forks.sessions, nothing="None."),
        forks.next_cursor is not None and h.p(".more")[h.a(href=link("sessions", source=session_id))["All of them"]],
    ]


def _turns(nodes: Sequence[Node], turns: Mapping[str, TurnRecord]) -> h.Element:
    """Return the steps of the newest turns as bars, with marks where an attempt died."""
    shown = [turns[turn_id] for turn_id in turns_of(nodes) if turn_id in turns][-_TURNS:]
    drawn = [(turn, turn.trace) for turn in reversed(shown) if turn.trace is not None and turn.trace.steps]
    return h.section("#turns")[
        h.h2["Steps of the last turns"],
        [
            h.details[
                h.summary[f"revision {turn.revision:,}: ", plural(len(trace.steps), "step"), *_attempts(trace)],
                h.div(".scroll", tabindex="0", role="region", aria_label="Steps")[timeline(trace_bars(trace))],
            ]
            for turn, trace in drawn
        ]
        or h.p(".empty")["No steps were recorded in these turns."],
    ]


def _attempts(trace: TurnTrace) -> tuple[str, ...]:
    lost = ((trace.failures, "failed attempt"), (trace.crashes, "crash"))
    return tuple(f", {plural(count, noun)}" for count, noun in lost if count)


def _queue(visit: Visit, queued: Sequence[QueuedBatch]) -> h.Element:
    return h.section("#queue")[h.h2["Queue"], queue_table(visit, queued, nothing="Nothing is queued.")]


def _compose(visit: Visit, session_id: str) -> h.Element:
    if not visit.may_act:
        return h.section("#compose", hidden=True)
    field = h.label(".wide")[h.span["Message"], h.textarea(name="text", rows="3", required=True)]
    return h.section("#compose")[
        h.h2["Send a message"], act("send", "Send", {"session": session_id, "key": FORM_KEY}, field)
    ]


def _rest(
    visit: Visit,
    session_id: str,
    read: SessionRead | None,
    files: Iterable[AttachmentEntry],
    state: dict[str, JSON],
) -> h.Element:
    usage = () if read is None else read.usage
    rows = (
        (
            line(each.source, 40),
            line(each.model, 60),
            f"{each.usage.input_tokens:,}",
            f"{each.usage.cached_input_tokens:,}",
            f"{each.usage.output_tokens:,}",
        )
        for each in usage
    )
    kept = (
        (
            h.a(href=link("attachment", session=session_id, id=each.ref.id), download=True)[each.ref.id[:16]],
            line(each.ref.label or "", 60),
            line(each.ref.media_type, 60),
            size(each.ref.byte_len),
        )
        for each in files
    )
    return h.section("#rest")[
        h.h2["State"],
        json_block(state, visit.redact) if state else h.p(".empty")["The agent keeps no state."],
        h.h2["Tokens"],
        table(("source", "model", "input", "cached", "output"), rows, nothing="No tokens were booked."),
        h.h2["Attachments"],
        table(("file", "label", "type", "size"), kept, nothing="None."),
    ]
