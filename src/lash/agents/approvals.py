"""Approvals: a tool call waits, without memory and worker, until a person has decided."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from lash.agents.vocabulary import ToolCall
from lash.base.replay_key import replay_key
from lash.base.shapes import convert
from lash.errors import InvalidInput, WaitRejected
from lash.model.effect import EffectRecord, TurnScope
from lash.model.value import JSON, JSONObject, Value
from lash.model.wait import Accepted, CustomIdentity, Question, Resolved, UnknownOrRevoked, WaitRecord
from lash.runtime.turns.turn import Turn
from lash.stores.storage import Storage

WAIT: Final = "approval"
"""The first part of the name of a wait for an approval."""
_PAGE: Final = 1_000
_SHOWN_BYTES: Final = 16_384
"""Longer arguments are not part of the question; `pending_approvals` has them."""
_DECISION: Final[JSONObject] = {
    "anyOf": [
        {"type": "boolean"},
        {
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "text": {"type": "string"}},
            "required": ["approved"],
        },
    ]
}
"""The schema of a decision, from which a form can be made."""


class Approval(Value, frozen=True, kw_only=True):
    """A decision about one tool call. The text is sent to the model, with the tool's result or instead of it."""

    approved: bool
    text: str = ""


class ApprovalRequest(Value, frozen=True, kw_only=True):
    """A tool call that waits for a decision. With ``key`` anyone can decide: ``app.resolve(key, True)``."""

    session_id: str
    turn_id: str
    call: ToolCall
    key: str


class PendingApproval(Value, frozen=True, kw_only=True):
    """A tool call that waits for a decision, as `pending_approvals` lists it."""

    session_id: str
    turn_id: str
    call: ToolCall
    wait_id: str


Notify = Callable[[ApprovalRequest], Awaitable[None]]
"""Asks a person to decide about a call."""


async def ask_approval(
    turn: Turn, call: ToolCall, call_key: str, *, notify: Notify | None, timeout_s: float | None
) -> Approval:
    """Return the decision about a tool call; the turn is parked until there is one.

    The key is unique to the call in its turn. Without a decision in time the call is denied.
    """
    name = wait_name(call.name, call_key)

    async def approval() -> ToolCall:
        turn.activity({"approval": {"id": call.id, "name": call.name, "arguments": call.arguments}})
        if notify is not None:
            key = await turn.wait_key(name)
            await notify(ApprovalRequest(session_id=turn.session_id, turn_id=turn.turn_id, call=call, key=key))
        return call

    # Recorded, so that a person is asked once, and that the call can be found from its wait.
    await turn.options(key=name).step(WAIT, approval)
    try:
        value: JSON = await turn.wait(name, timeout_s=timeout_s, ask=approval_question(call))
    except WaitRejected as rejected:
        return Approval(approved=False, text=rejected.message)
    except TimeoutError:
        return Approval(approved=False, text=f"No decision came within {timeout_s:g} s.")
    return read_decision(value)


def wait_name(tool: str, call_key: str) -> str:
    """Return the name of the wait for the approval of a call; ``lash waits ls`` shows it."""
    return replay_key(WAIT, tool, call_key)


def approval_question(call: ToolCall) -> Question:
    """Return the question to the person who decides about a call; the answer is true, false or an `Approval`."""
    is_short = len(msgspec.json.encode(call.arguments)) <= _SHOWN_BYTES
    details: JSON = {"tool": call.name, "arguments": call.arguments if is_short else None}
    return Question(text=f"Run the tool {call.name}?", schema=_DECISION, details=details)


def read_decision(value: JSON) -> Approval:
    """Return the decision that a wait was resolved with. Anything unknown denies the call."""
    if isinstance(value, bool):
        return Approval(approved=value)
    try:
        return convert(value, Approval)
    except msgspec.ValidationError:
        return Approval(approved=False, text=f"expected true, false or an Approval, got {value!r:.80}")


async def pending_approvals(storage: Storage, *, session_id: str | None = None) -> tuple[PendingApproval, ...]:
    """Return the tool calls that wait for a decision, of one session or of all: two reads for 1,000 open waits."""
    found: list[PendingApproval] = []
    async for page in _open_waits(storage):
        found += await _pending(storage, page, session_id)
    return tuple(found)


async def calls_of(storage: Storage, waits: Sequence[WaitRecord]) -> dict[str, ToolCall]:
    """Return the tool calls that wait for a decision, by the ids of their waits; other waits are left out."""
    return {each.wait_id: each.call for each in await _pending(storage, waits, None)}


async def _pending(storage: Storage, waits: Sequence[WaitRecord], session_id: str | None) -> list[PendingApproval]:
    """Return those of the waits that are for an approval, in one read."""
    asking = [each for wait in waits if (each := _asking(wait, session_id)) is not None]
    steps = await storage.effects.get_many([(each.scope, each.step_key) for each in asking]) if asking else ()
    return [call for each, step in zip(asking, steps, strict=True) if (call := each.pending(step)) is not None]


async def decide(storage: Storage, pending: PendingApproval, *, approved: bool, text: str = "") -> bool:
    """Approve or deny a call; return False if another decision was first, which then stands.

    It checks no rights: check those of a caller from outside before.
    """
    decision: JSON = msgspec.to_builtins(Approval(approved=approved, text=text))
    answer = await storage.waits.resolve_id(pending.wait_id, Resolved(value=decision))
    if isinstance(answer, UnknownOrRevoked):
        raise InvalidInput("unknown approval: its session was deleted, or its keys were revoked")
    return isinstance(answer, Accepted)


async def _open_waits(storage: Storage) -> AsyncIterator[tuple[WaitRecord, ...]]:
    after: str | None = None
    while True:
        page = await storage.waits.pending(limit=_PAGE, after=after)
        yield page
        if len(page) < _PAGE:
            return
        after = page[-1].key_id


class _Asking(NamedTuple):
    """A wait for an approval, and the step of its turn that recorded the call."""

    scope: TurnScope
    step_key: str
    wait_id: str

    def pending(self, step: EffectRecord | None) -> PendingApproval | None:
        """Return the call as the step recorded it; None if it has not."""
        try:
            call = convert(None if step is None else step.outcome, ToolCall)
        except msgspec.ValidationError:
            # A wait of the application that has such a name.
            return None
        scope = self.scope
        return PendingApproval(session_id=scope.session_id, turn_id=scope.turn_id, call=call, wait_id=self.wait_id)


def _asking(wait: WaitRecord, session_id: str | None) -> _Asking | None:
    """Return the wait if it is for an approval, in this session if one is given."""
    scope, identity = wait.scope, wait.identity
    if not isinstance(identity, CustomIdentity) or not identity.key.startswith(f"{WAIT}:"):
        return None
    if not isinstance(scope, TurnScope) or session_id not in (None, scope.session_id):
        return None
    return _Asking(scope, replay_key("key", identity.key), wait.key_id)


def call_key(call: ToolCall, seen: dict[str, int]) -> str:
    """Return a key for a call that is unique in its turn: some servers number the calls of each reply from 0."""
    call_id = call.id or "call"
    number = seen[call_id] = seen.get(call_id, 0) + 1
    return call_id if number == 1 else f"{call_id}#{number}"
