"""One session: the conversation, its graph, its turns, its queue, usage and state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import htpy as h

from lash.cli.queue import session_queue_pages, state_of
from lash.cli.text import size
from lash.cli.turn import read_turns, turns_of
from lash.errors import InvalidInput
from lash.model.attachment import AttachmentEntry
from lash.model.effect import EffectRecord, TurnScope
from lash.model.lease import Lease
from lash.model.queue import QueuedBatch
from lash.model.session.node import Node
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
from lash.model.value import JSON
from lash.model.wait import WaitRecord
from lash.runtime.turns.handle import SessionHandle
from lash.web.graph import Drawing, laid_out
from lash.web.pages.acts import acts_about
from lash.web.pages.conversation import chat, compose
from lash.web.pages.queue import queue_table
from lash.web.pages.sessions import session_table
from lash.web.pages.turns import open_turn, past_turns, running_turn
from lash.web.show import act, ago, badge, facts, json_block, line, link, name_link, table
from lash.web.view import Visit, WebPage
from lash.web.waiting import waits_here
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
_STEPS: Final = 200
_ACTS: Final = 10


async def session(visit: Visit) -> WebPage:
    """A fixed number of reads, however long the session is."""
    session_id = visit.parameter("id")
    if not session_id:
        raise InvalidInput("expected the id of a session in the address, got none")
    stored = visit.storage.session(session_id)
    meta, head = await asyncio.gather(stored.meta(), stored.head())
    scope = ActivePath(leaf_node_id=visit.parameter("leaf") or None, last=_MESSAGES)
    read, whole, holder, (queued, _) = await asyncio.gather(
        stored.load(scope),
        _graph(visit, session_id, head),
        visit.storage.leases.holder(session_id),
        session_queue_pages(visit.storage, session_id, None)(_QUEUED, None),
    )
    nodes = () if read is None else read.graph.nodes
    words, turns, (effects, waits) = await asyncio.gather(
        spoken(visit.storage, session_id, holder),
        read_turns(visit.storage, session_id, turns_of(nodes)),
        _open_turn(visit, open_turn(session_id, queued)),
    )
    files, state, forks, acts = await asyncio.gather(
        visit.storage.attachments.list(session_id, limit=_QUEUED),
        SessionHandle(visit.storage, session_id).state(),
        visit.storage.sessions.list(
            SessionFilter(source_session_id=session_id), with_state=True, with_counts=True, limit=_FORKS
        ),
        visit.storage.acts.list(session_id=session_id, limit=_ACTS),
    )
    graph = nodes if whole is None else whole.graph.nodes
    is_on_path = _is_on_path(graph, head, visit.parameter("leaf"))
    pieces = (
        _facts(visit, meta, head, _state(holder, queued), is_running=holder is not None),
        waits_here(visit, waits),
        chat(visit, session_id, nodes, queued, words, is_on_path=is_on_path),
        compose(visit, session_id),
        running_turn(visit, holder, effects, waits),
        past_turns(visit, nodes, turns),
        _tree(visit, session_id, graph, nodes, forks.sessions),
        _forks(visit, session_id, forks),
        _queue(visit, queued),
        _rest(visit, session_id, read, files.entries, state),
        acts_about(acts, _ACTS, session=session_id),
    )
    return WebPage(meta.name or session_id, pieces)


async def _graph(visit: Visit, session_id: str, head: SessionHead | None) -> SessionRead | None:
    """Return the whole graph if it is small enough to be drawn from one read."""
    if head is None or head.node_count > _MOST_READ:
        return None
    return await visit.storage.session(session_id).load(FullGraph())


async def _open_turn(visit: Visit, scope: TurnScope | None) -> tuple[tuple[EffectRecord, ...], tuple[WaitRecord, ...]]:
    """Return the recorded steps and the open waits of a turn that is not committed yet."""
    if scope is None:
        return (), ()
    return await asyncio.gather(
        visit.storage.effects.recent(scope, _STEPS), visit.storage.waits.pending(scope=scope, limit=_QUEUED)
    )


def _is_on_path(nodes: Sequence[Node], head: SessionHead | None, leaf: str) -> bool:
    """Return whether a node is on the active path, as far as its nodes were read."""
    parents = {node.node_id: node.parent_node_id for node in nodes}
    at = None if head is None else head.leaf_node_id
    if at not in parents:
        # Only a part of a large graph was read. Whether the node is beside the path is unknown.
        return True
    while at is not None and at != leaf:
        at = parents.get(at)
    return at == leaf or not leaf


def _state(holder: Lease | None, queued: Sequence[QueuedBatch]) -> h.Node:
    if holder is not None:
        return (badge("running"), f" by {line(holder.owner.owner_id, 60)}")
    first = next(iter(queued), None)
    return badge("idle") if first is None else badge(first.state.value, state_of(first))


def _facts(visit: Visit, meta: SessionMeta, head: SessionHead | None, state: h.Node, *, is_running: bool) -> h.Element:
    relation: h.Node = None
    if isinstance(meta.relation, ForkRelation):
        relation = ("fork of ", name_link("session", meta.relation.source_session_id))
    elif isinstance(meta.relation, ChildRelation):
        relation = ("started by ", name_link("session", meta.relation.parent_session_id))
    labels = [h.span(".label")[line(f"{key}={value}", 80)] for key, value in sorted(meta.labels.items())]
    return h.section("#facts", aria_label="Facts")[
        facts(
            (
                ("id", h.code[line(meta.session_id)]),
                ("state", state),
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
        and is_running
        and act("cancel-turn", "Cancel the turn", {"session": meta.session_id}, danger=True),
    ]


def _tree(
    visit: Visit, session_id: str, nodes: Sequence[Node], active: Sequence[Node], forks: Sequence[SessionSummary]
) -> h.Element:
    shown = nodes[-_MOST_DRAWN:]
    cut = f"The newest {_MOST_DRAWN:,} of {len(nodes):,} nodes." if len(nodes) > _MOST_DRAWN else None
    drawing = Drawing(session_id, {node.node_id for node in active}, _forked(forks), visit.redact)
    return h.section("#tree")[
        h.h2["Graph"],
        h.div(".scroll.card", tabindex="0", role="region", aria_label="Graph")[drawing.draw(laid_out(shown, active))]
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


def _queue(visit: Visit, queued: Sequence[QueuedBatch]) -> h.Element:
    return h.section("#queue")[h.h2["Queue"], queue_table(visit, queued, nothing="Nothing is queued.")]


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
        h.div(".card")[json_block(state, visit.redact)] if state else h.p(".empty")["The agent keeps no state."],
        h.h2["Tokens"],
        table(("source", "model", "input", "cached", "output"), rows, nothing="No tokens were booked."),
        h.h2["Attachments"],
        table(("file", "label", "type", "size"), kept, nothing="None."),
    ]
