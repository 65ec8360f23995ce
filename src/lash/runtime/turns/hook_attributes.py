"""What hooks get about a turn beyond its ids: how long it waited, who sent it, which tokens it used."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lash.model.queue import Claim, TextItem, TurnInput
from lash.model.session.message import Message, Role
from lash.runtime.turns.draft import TurnDraft


def turn_attributes(claim: Claim, *, content: bool) -> dict[str, str | float]:
    """Return how long the first message waited, the trace of its sender if there is one, and the input on request."""
    head = claim.batches[0]
    ready_at_ms = head.enqueued_at_ms if head.is_parked else max(head.enqueued_at_ms, head.available_at_ms)
    attributes: dict[str, str | float] = {"waited_s": max(0, claim.claimed_at_ms - ready_at_ms) / 1_000}
    inputs = [each for batch in claim.batches for each in batch.payloads if isinstance(each, TurnInput)]
    if inputs and inputs[0].traceparent is not None:
        attributes["traceparent"] = inputs[0].traceparent
    if content:
        texts = ([item.text for item in each.items if isinstance(item, TextItem)] for each in inputs)
        attributes["input"] = _as_json(("user", each) for each in texts)
    return attributes


def committed_attributes(draft: TurnDraft, *, content: bool) -> dict[str, str | int]:
    """Return the tokens of a turn in all, the model if it used only one, and the reply on request."""
    attributes: dict[str, str | int] = {}
    if draft.usage:
        used, models = [entry.usage for entry in draft.usage], {entry.model for entry in draft.usage}
        attributes = {
            "input_tokens": sum(usage.input_tokens for usage in used),
            "output_tokens": sum(usage.output_tokens for usage in used),
            "cached_input_tokens": sum(usage.cached_input_tokens for usage in used),
            "reasoning_tokens": sum(usage.reasoning_tokens for usage in used),
        }
        if len(models) == 1:
            attributes["model"] = models.pop()
    if content:
        replies = [message for message in draft.messages() if message.role is Role.ASSISTANT]
        attributes["output"] = _as_json((message.role.value, _texts(message)) for message in replies[-1:])
    return attributes


def _texts(message: Message) -> list[str]:
    return [part.content for part in message.parts if part.attachment is None]


def _as_json(messages: Iterable[tuple[str, list[str]]]) -> str:
    plain = [{"role": role, "parts": [{"type": "text", "content": text} for text in texts]} for role, texts in messages]
    return msgspec.json.encode(plain).decode()
