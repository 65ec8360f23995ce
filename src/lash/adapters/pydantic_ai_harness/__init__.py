"""The harness of pydantic-ai on a lash storage: install ``lash-runtime[pydantic-ai-harness]``."""

from __future__ import annotations

from lash.adapters.attached import not_installed

try:
    from lash.adapters.pydantic_ai_harness.step_store import LashStepStore
except ModuleNotFoundError as error:
    raise not_installed("the harness of pydantic-ai", extra="pydantic-ai-harness") from error

__all__ = ["LashStepStore"]
