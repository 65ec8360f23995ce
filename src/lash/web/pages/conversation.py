"""The conversation of a session: its messages, what an operator can do to each, and the words of the running turn."""

from __future__ import annotations

from collections.abc import Sequence

import htpy as h

from lash.cli.queue import content_of
from lash.cli.text import size
from lash.model.queue import QueuedBatch, QueuedState
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import ErasedEntry, MessageEntry, Node
from lash.web.forms import FORM_KEY
from lash.web.graph import anchor
from lash.web.show import act, ago, block, json_block, line, link
from lash.web.view import Visit


def chat(
    visit: Visit, session_id: str, nodes: Sequence[Node], queued: Sequence[QueuedBatch], words: str, *, is_on_path: bool
) -> h.Element:
    """Return the messages of a path, and those of the open turn; ``is_on_path`` says whether it is the active path."""
    first = nodes[0].parent_node_id if nodes else None
    older = h.p(".more")[h.a(href=link("session", id=session_id, leaf=first))["Earlier messages"]] if first else None
    running = (
        words
        and h.article("#words.message.assistant.live", aria_live="polite")[
            h.header[h.b["assistant"], h.span["running now"]], h.pre(".text")[block(visit.redact(words))]
        ]
    )
    shown = [_message(visit, session_id, node) for node in nodes]
    if visit.parameter("leaf"):
        # An earlier part, or another branch: what happens now does not follow it.
        queued, words = (), ""
    asked = [_asked(visit, each) for each in queued if each.state in (QueuedState.CLAIMED, QueuedState.PARKED)]
    nothing = (
        None if words or asked else h.p(".empty")["No messages were committed yet. They appear here with their turn."]
    )
    return h.section("#chat", aria_label="Conversation")[
        h.h2["Conversation"],
        _part_of_it(visit, session_id, is_on_path=is_on_path),
        older,
        shown or nothing,
        asked,
        running,
    ]


def _asked(visit: Visit, item: QueuedBatch) -> h.Element:
    """Return a message that the open turn answers; it becomes part of the conversation with the commit."""
    return h.article(".message.user.live")[
        h.header[h.b["user"], ago(item.batch.enqueued_at_ms), h.span["in the open turn"]],
        h.pre(".text")[block(visit.redact(content_of(item.batch)))],
    ]


def _part_of_it(visit: Visit, session_id: str, *, is_on_path: bool) -> h.Node:
    """Return where the visitor is, if the page does not end with the newest message."""
    leaf = visit.parameter("leaf")
    if not leaf:
        return None
    text = "An earlier part of the conversation. " if is_on_path else "A branch beside the conversation. "
    return h.div(".notice")[
        h.p[text, h.a(href=link("session", id=session_id))["Back to the newest messages"]],
        visit.may_act and not is_on_path and act("switch", "Continue from here", {"session": session_id, "node": leaf}),
    ]


def _message(visit: Visit, session_id: str, node: Node) -> h.Element:
    entry = node.entry
    fields = {"session": session_id, "node": node.node_id}
    fork = visit.may_act and act("fork", "Fork here", {**fields, "key": FORM_KEY}, quiet=True)
    if not isinstance(entry, MessageEntry):
        body: h.Node = h.p(".quiet")["erased"] if isinstance(entry, ErasedEntry) else json_block(entry, visit.redact)
        return _article(node, "other", node.kind, body, fork)
    role = entry.message.role.value
    parts = [_part(visit, session_id, part) for part in entry.message.parts]
    edit = visit.may_act and entry.message.role is Role.USER and _edit(visit, entry.message, fields)
    return _article(node, role, role, (parts, edit), fork)


def _article(node: Node, tone: str, title: str, body: h.Node, fork: h.Node) -> h.Element:
    return h.article(id=anchor(node.node_id), class_=["message", tone])[
        h.header[h.b[line(title, 60)], " ", ago(int(node.timestamp.timestamp() * 1_000)), fork],
        body,
    ]


def _edit(visit: Visit, message: Message, fields: dict[str, str]) -> h.Element:
    """Return a form for another message at the same place. It has the text, unless the page does not show all of it."""
    text = "\n".join(part.content for part in message.parts if part.kind is PartKind.TEXT and part.attachment is None)
    shown = block(visit.redact(text))
    field = h.label(".wide")[
        h.span["Message instead of this one"],
        h.textarea(name="text", rows="3", required=True)[shown if shown == text else ""],
    ]
    return h.details(".edit")[
        h.summary["Edit"],
        act("edit", "Send on a new branch", {**fields, "key": FORM_KEY}, field),
        h.p(".quiet")["The agent answers it on a branch of its own. This message, and what follows it, stay."],
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


def compose(visit: Visit, session_id: str) -> h.Element:
    """Return the form of the next message."""
    if not visit.may_act:
        return h.section("#compose", hidden=True)
    field = h.label(".wide")[h.span["Message"], h.textarea(name="text", rows="3", required=True)]
    return h.section("#compose")[
        h.h2["Send a message"], act("send", "Send", {"session": session_id, "key": FORM_KEY}, field)
    ]
