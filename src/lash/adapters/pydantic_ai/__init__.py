"""pydantic-ai inside lash's turns and processes: install ``lash-runtime[pydantic-ai]``."""

from __future__ import annotations

from lash.adapters.attached import not_installed

try:
    from lash.adapters.pydantic_ai.deferred import DeferredCall
    from lash.adapters.pydantic_ai.durability import LashDurability
    from lash.adapters.pydantic_ai.history import LashHistory, history, reply
except ModuleNotFoundError as error:
    raise not_installed("pydantic-ai", extra="pydantic-ai") from error

__all__ = ["DeferredCall", "LashDurability", "LashHistory", "history", "reply"]
