"""Strands Agents on a lash storage: install ``lash-runtime[strands]``."""

from __future__ import annotations

from lash.adapters.attached import not_installed

try:
    from lash.adapters.strands.repository import LashSessionRepository
    from lash.adapters.strands.storage import LashStorage
except ModuleNotFoundError as error:
    raise not_installed("Strands Agents", extra="strands") from error

__all__ = ["LashSessionRepository", "LashStorage"]
