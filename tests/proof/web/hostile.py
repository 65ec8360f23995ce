"""Hostile texts in every field that a page shows."""

from __future__ import annotations

from typing import Final

import lash
from lash.model.activity import ActivityDraft
from lash.model.effect import EffectError, ProcessScope, TurnScope
from lash.model.process.event import EventDraft, EventType
from lash.model.process.process import EngineInput, Failure, ProcessIdentity
from lash.model.queue import ClaimedTurn, turn_id_of
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import MessageEntry, Node
from lash.model.trigger.schedule import ScheduleDraft
from lash.model.wait import CustomIdentity, Question
from lash.stores.storage import Storage
from tests.contract.test_worker import beat
from tests.factories.effect import effect
from tests.factories.process import process, process_lease
from tests.factories.session import MOMENT, commit, node, owner, plugin_node, spent
from tests.factories.trigger import trigger

_SHORT: Final = 240
"""How much of a text becomes an id or a name."""
_ACTIVITY: Final = 60_000
"""How much of a text fits into one piece of activity."""
OWNED: Final = "window.owned=1"
TEXTS: Final = (
    (
        f'"> autofocus onfocus={OWNED} x="<img src=x onerror="{OWNED}"><script>{OWNED}</script>'
        f"</textarea></title></pre></svg><svg onload={OWNED}>"
        "\x1b[2J\x07\u202e\u2066\x85\ufeff\r\ndata: <b>\n\nevent: piece\ndata: <b>"
        '{{7*7}}<!--]]>&lt;%3C{"broken": [1, "\\ud800", '
    ),
    f"javascript:{OWNED}",
    "A" * 100_000 + f"<script>{OWNED}</script>",
)
"""Markup, control characters and broken JSON; a link; a huge text."""


async def plant(storage: Storage, text: str) -> tuple[str, str]:
    """Put a text into every field, and return the ids of the session and of the process, which begin with it."""
    name = text[:_SHORT]
    session_id, process_id = f"{name} session", f"{name} process"
    await _session(storage, session_id, text, name)
    await _process(storage, process_id, text, name)
    announced = beat(f"{name} worker", beat_ms=60_000, host=name, version=name)
    await storage.work.poll(sessions=0, processes=0, owner=announced.owner, beat=announced)
    await storage.leases.claim(session_id, announced.owner, ttl_ms=600_000)
    await storage.triggers.register(trigger(name, source_type=name[:100], label=name))
    await storage.schedules.register(ScheduleDraft(key=name, cron="0 7 * * *"))
    await storage.acts.record(name, name, name, session_id=session_id)
    await storage.acts.record(name, name, name, process_id=process_id)
    return session_id, process_id


async def _session(storage: Storage, session_id: str, text: str, name: str) -> None:
    await storage.sessions.create(session_id, name=name, owner=name, labels={name: name})
    parts = tuple(
        Part(id=f"p{number}", kind=kind, content=text, tool_name=name, tool_call_id=name)
        for number, kind in enumerate((PartKind.PROSE, PartKind.TOOL_CALL, PartKind.TOOL_RESULT, PartKind.REASONING))
    )
    reply = MessageEntry(message=Message(id="reply", role=Role.ASSISTANT, parts=parts))
    nodes = (
        node(name, None, text),
        Node(node_id="reply", parent_node_id=name, timestamp=MOMENT, entry=reply),
        plugin_node("plugin", {name: text}, "reply"),
        node("branch", name, text),
    )
    usage = (spent(10, 2, model=name, source=name),)
    await storage.session(session_id).commit(commit(0, *nodes, session_id=session_id, usage=usage))
    await storage.sessions.fork(session_id, f"{name} fork", node_id="reply")
    await storage.attachments.put(session_id, text.encode(), "text/html", label=name)
    dead, running = f"{name} dead", f"{name} running"
    for each in (session_id, dead, running):
        await storage.sessions.create(each)
        await lash.SessionHandle(storage, each, agent=name).send(text)
    claimed = await storage.queue.claim_turn(dead, owner(name), ttl_ms=60_000)
    assert isinstance(claimed, ClaimedTurn)
    await storage.queue.bury(claimed.claim, reason=name, error={"traceback": text, "type": name})
    claimed = await storage.queue.claim_turn(running, owner(name), ttl_ms=600_000)
    assert isinstance(claimed, ClaimedTurn)
    turn_id = turn_id_of(claimed.claim.batches[0].batch_id)
    await storage.activity.append(
        running, [ActivityDraft(turn_id=turn_id, payload={"type": "text", "text": text[:_ACTIVITY]})]
    )
    scope = TurnScope(session_id=running, turn_id=turn_id)
    await storage.effects.record(claimed.lease.fence, effect(name, scope=scope), {name: text})
    await _ask(storage, scope, text, name)


async def _process(storage: Storage, process_id: str, text: str, name: str) -> None:
    identity, scope = ProcessIdentity(kind=name, label=name), ProcessScope(process_id=process_id)
    payload = {name: text}
    await storage.processes.register(
        process(process_id, EventType(name="note"), identity=identity, input=EngineInput(kind=name, payload=payload))
    )
    await storage.events.append(process_id, EventDraft(event_type="note", payload=payload))
    lease = process_lease(await storage.process_leases.claim(process_id, owner(name), ttl_ms=600_000))
    await storage.effects.record(lease.fence, effect(name, scope=scope), payload)
    broken = EffectError(code=name, message=text, raw={"traceback": text})
    await storage.effects.record(lease.fence, effect(f"{name} 2", scope=scope), broken)
    await _ask(storage, scope, text, name)
    ended = f"{name} ended"
    await storage.processes.register(process(ended, identity=identity))
    await storage.processes.complete(ended, Failure(code=name, message=text, raw={"traceback": text}))


async def _ask(storage: Storage, scope: ProcessScope | TurnScope, text: str, name: str) -> None:
    schema = {
        "type": "object",
        "title": name,
        "properties": {name: {"type": "string", "title": name}, "choice": {"enum": [name, "b"]}},
    }
    key = await storage.waits.key(scope, CustomIdentity(key=name))
    await storage.waits.open(
        key, ask=Question(text=text[:4_000], schema=schema, details={name: text[: _ACTIVITY // 2]})
    )
