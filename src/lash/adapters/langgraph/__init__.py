"""LangGraph on a lash storage: install ``lash-runtime[langgraph]``."""

from __future__ import annotations

from lash.adapters.attached import not_installed

try:
    from lash.adapters.langgraph.errors import ThreadMoved
    from lash.adapters.langgraph.runner import ThreadRunner
    from lash.adapters.langgraph.saver import LashSaver
    from lash.adapters.langgraph.store import LashStore
except ModuleNotFoundError as error:
    raise not_installed("LangGraph", extra="langgraph") from error

__all__ = ["LashSaver", "LashStore", "ThreadMoved", "ThreadRunner"]
