"""A model for agents of Strands that calls a tool once and then repeats the tool's result; no network is used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from strands.models.model import Model


class EchoingModel(Model):
    """A stand-in for a model."""

    def update_config(self, **model_config: Any) -> None:  # noqa: ANN401 (Strands' signature)
        """Do nothing."""

    def get_config(self) -> dict[str, Any]:
        """Return no configuration."""
        return {}

    def structured_output(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 (Strands' signature)
        """Raise NotImplementedError."""
        raise NotImplementedError

    async def stream(self, messages: Any, *arguments: Any, **options: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        """Call the tool ``count`` after a text, and answer after the tool's result."""
        last = messages[-1]["content"][-1]
        yield {"messageStart": {"role": "assistant"}}
        if "toolResult" in last:
            yield {"contentBlockStart": {"start": {}}}
            text = f"counted {last['toolResult']['content'][0]['text']}"
            yield {"contentBlockDelta": {"delta": {"text": text}}}
            reason = "end_turn"
        else:
            use = {"name": "count", "toolUseId": f"use-{len(messages)}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}}
            reason = "tool_use"
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}
