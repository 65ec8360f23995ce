"""What an operator does from a page: each act is one POST, and goes back to the page it came from."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from lash.cli.owner import owner_of
from lash.cli.text import plural
from lash.errors import DeadLetterNotFound, InvalidInput
from lash.model.queue import DeadLetter
from lash.model.scope import scope_process_id, scope_session_id
from lash.model.wait import Accepted, AlreadyResolved, Rejected, Resolution, Resolved, WaitRecord
from lash.runtime.acting import acting
from lash.runtime.processes.handle import ProcessHandle
from lash.runtime.turns.handle import SessionHandle
from lash.stores.storage import Storage
from lash.web.answer import answer_of
from lash.web.forms import json_of
from lash.web.matching import matching_letters, matching_queued


class Done(NamedTuple):
    """Where the visitor goes after an act, and the notice that the page shows."""

    text: str
    page: str
    query: Mapping[str, str]


Fields: TypeAlias = Mapping[str, str]
Act: TypeAlias = Callable[[Storage, Fields, str], Awaitable[Done]]


def _required(fields: Fields, name: str) -> str:
    value = fields.get(name, "").strip()
    if not value:
        raise InvalidInput(f"expected a value for {name}, got none; go back and fill it in")
    return value


def _number(fields: Fields, name: str) -> int:
    text = _required(fields, name)
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"expected a number for {name}, got {text[:60]!r}; load the page again")
    return int(text)


async def send(storage: Storage, fields: Fields, by: str) -> Done:
    """Send a message; a form that is submitted twice sends it once."""
    session_id = _required(fields, "session")
    agent = fields.get("agent") or None
    text, key = _required(fields, "text"), _required(fields, "key")
    async with acting(storage, by, "send", key, session_id=session_id):
        await SessionHandle(storage, session_id, agent=agent).send(text, key=key)
    return Done("sent", "session", {"id": session_id})


async def edit(storage: Storage, fields: Fields, by: str) -> Done:
    """Send a message instead of an earlier one, on a branch; a form that is submitted twice sends it once."""
    session_id, node_id = _required(fields, "session"), _required(fields, "node")
    text, key = _required(fields, "text"), _required(fields, "key")
    async with acting(storage, by, "edit", node_id, session_id=session_id):
        await SessionHandle(storage, session_id).send(text, key=key, instead_of=node_id)
    return Done("sent on a branch of its own", "session", {"id": session_id})


async def switch(storage: Storage, fields: Fields, by: str) -> Done:
    """Make the branch that a message is on the conversation."""
    session_id, node_id = _required(fields, "session"), _required(fields, "node")
    async with acting(storage, by, "switch", node_id, session_id=session_id):
        await SessionHandle(storage, session_id).switch(node_id)
    return Done("the conversation continues on this branch", "session", {"id": session_id})


async def fork(storage: Storage, fields: Fields, by: str) -> Done:
    """Fork a session at a message; a form that is submitted twice makes one fork."""
    session_id, node_id = _required(fields, "session"), _required(fields, "node")
    forked_id = fields.get("new_id", "").strip() or f"{session_id}-{_required(fields, 'key')[-8:]}"
    async with acting(storage, by, "fork", forked_id, session_id=session_id):
        await storage.sessions.fork(session_id, forked_id, node_id=node_id)
    return Done(f"forked from {session_id}", "session", {"id": forked_id})


async def cancel_turn(storage: Storage, fields: Fields, by: str) -> Done:
    session_id, batch_id = _required(fields, "session"), fields.get("batch") or None
    found = await _cancel(storage, session_id, batch_id, by)
    return Done("asked it to stop" if found else "nothing was running", "session", {"id": session_id})


async def cancel_process(storage: Storage, fields: Fields, by: str) -> Done:
    process_id = _required(fields, "process")
    async with acting(storage, by, "cancel", process_id, process_id=process_id):
        await storage.processes.request_cancel(process_id, reason=f"cancelled by {by}")
    return Done("asked it to stop", "process", {"id": process_id})


async def rerun(storage: Storage, fields: Fields, by: str) -> Done:
    """Start a process again under the id that the form has, so that a form that is submitted twice starts it once."""
    process_id, made = _required(fields, "process"), _required(fields, "key")
    async with acting(storage, by, "rerun", made, process_id=process_id):
        handle: ProcessHandle[object] = ProcessHandle(storage, process_id)
        await handle.rerun(made)
    return Done(f"started again as a rerun of {process_id}", "process", {"id": made})


async def signal(storage: Storage, fields: Fields, by: str) -> Done:
    """Send a signal to a process; a form that is submitted twice sends it once."""
    process_id, name = _required(fields, "process"), _required(fields, "name")
    payload = json_of(fields.get("payload", ""), "the payload")
    key = _required(fields, "key")
    async with acting(storage, by, "signal", name, process_id=process_id):
        await storage.events.signal(process_id, name, signal_id=key, payload=payload)
    return Done(f"sent signal {name}", "process", {"id": process_id})


async def requeue(storage: Storage, fields: Fields, by: str) -> Done:
    session_id, batch_id = _required(fields, "session"), _required(fields, "batch")
    await _requeue(storage, session_id, batch_id, by)
    return Done("queued it again", "queue", {"show": "dead"})


async def discard(storage: Storage, fields: Fields, by: str) -> Done:
    session_id, batch_id = _required(fields, "session"), _required(fields, "batch")
    gone = await _discard(storage, session_id, batch_id, by)
    return Done("discarded it" if gone else "it was gone already", "queue", {"show": "dead"})


async def requeue_all(storage: Storage, fields: Fields, by: str) -> Done:
    """Queue every dead letter again that the check counted."""
    done = 0
    for letter in await _counted_letters(storage, fields):
        # Another operator may have dealt with one of them meanwhile.
        with contextlib.suppress(DeadLetterNotFound):
            await _requeue(storage, letter.batch.session_id, letter.batch.batch_id, by)
            done += 1
    return Done(f"queued {plural(done, 'message')} again", "queue", _dead_list(fields))


async def discard_all(storage: Storage, fields: Fields, by: str) -> Done:
    """Discard every dead letter that the check counted."""
    done = 0
    for letter in await _counted_letters(storage, fields):
        done += await _discard(storage, letter.batch.session_id, letter.batch.batch_id, by)
    return Done(f"discarded {plural(done, 'message')}", "queue", _dead_list(fields))


async def cancel_all(storage: Storage, fields: Fields, by: str) -> Done:
    """Cancel every queued message that the check counted."""
    prefix, state, last, done = fields.get("prefix", ""), fields.get("state", ""), _number(fields, "last"), 0
    for item in await matching_queued(storage, prefix, state):
        batch = item.batch
        if batch.seq <= last:
            done += await _cancel(storage, batch.session_id, batch.batch_id, by)
    return Done(f"cancelled {plural(done, 'message')}", "queue", {"prefix": prefix, "state": state})


async def _counted_letters(storage: Storage, fields: Fields) -> list[DeadLetter]:
    """Return the dead letters that a check counted, without later ones."""
    last = _number(fields, "last")
    return [each for each in await matching_letters(storage, fields.get("prefix", "")) if each.position <= last]


async def _cancel(storage: Storage, session_id: str, batch_id: str | None, by: str) -> bool:
    async with acting(storage, by, "cancel", batch_id or session_id, session_id=session_id):
        return await SessionHandle(storage, session_id).cancel(f"cancelled by {by}", batch_id=batch_id)


async def _requeue(storage: Storage, session_id: str, batch_id: str, by: str) -> None:
    async with acting(storage, by, "requeue", batch_id, session_id=session_id):
        await storage.queue.requeue(session_id, batch_id)


async def _discard(storage: Storage, session_id: str, batch_id: str, by: str) -> bool:
    async with acting(storage, by, "discard", batch_id, session_id=session_id):
        return await storage.queue.discard(session_id, batch_id)


def _dead_list(fields: Fields) -> Mapping[str, str]:
    return {"show": "dead", "prefix": fields.get("prefix", "")}


async def resolve(storage: Storage, fields: Fields, by: str) -> Done:
    """Answer a wait; an answer that does not match the schema of its question is refused."""
    wait_id = _required(fields, "wait")
    wait = await storage.waits.get_id(wait_id)
    schema = None if wait is None or wait.ask is None else wait.ask.schema
    return await _settle(storage, wait, Resolved(value=answer_of(fields, schema)), by)


async def reject(storage: Storage, fields: Fields, by: str) -> Done:
    message = fields.get("message", "").strip() or f"rejected by {by}"
    wait = await storage.waits.get_id(_required(fields, "wait"))
    return await _settle(storage, wait, Rejected(code="rejected", message=message), by)


async def _settle(storage: Storage, wait: WaitRecord | None, resolution: Resolution, by: str) -> Done:
    if wait is None:
        return Done("the wait is unknown or was revoked", "inbox", {})
    verb, process_id = "resolve" if isinstance(resolution, Resolved) else "reject", scope_process_id(wait.scope)
    async with acting(storage, by, verb, wait.key_id, session_id=scope_session_id(wait.scope), process_id=process_id):
        answer = await storage.waits.resolve_id(wait.key_id, resolution)
    if isinstance(answer, Accepted):
        return Done("answered", "inbox", {})
    text = "it was answered before" if isinstance(answer, AlreadyResolved) else "the wait is unknown or was revoked"
    return Done(text, "inbox", {})


async def drain(storage: Storage, fields: Fields, by: str) -> Done:
    worker_id = _required(fields, "worker")
    async with acting(storage, by, "drain", worker_id):
        found = await storage.workers.drain(worker_id)
    return Done("it takes nothing new" if found else "the worker is gone", "workers", {})


async def set_schedule(storage: Storage, fields: Fields, by: str) -> Done:
    """Enable or disable a schedule; a form about an older revision is refused by the storage."""
    session_id, key = fields.get("session") or None, _required(fields, "schedule")
    revision, on = _number(fields, "revision"), fields.get("enable") == "yes"
    change = storage.schedules.enable if on else storage.schedules.disable
    async with acting(storage, by, "enable-schedule" if on else "disable-schedule", key, session_id=session_id):
        await change(owner_of(session_id), key, revision=revision)
    return Done("enabled" if on else "disabled", "triggers", {})


ACTS: Final[Mapping[str, Act]] = {
    "send": send,
    "edit": edit,
    "switch": switch,
    "fork": fork,
    "cancel-turn": cancel_turn,
    "cancel-process": cancel_process,
    "rerun": rerun,
    "signal": signal,
    "requeue": requeue,
    "requeue-all": requeue_all,
    "discard": discard,
    "discard-all": discard_all,
    "cancel-all": cancel_all,
    "resolve": resolve,
    "reject": reject,
    "drain": drain,
    "set-schedule": set_schedule,
}
