"""Errors of the LangGraph adapter."""

from __future__ import annotations

from lash.errors import Conflict


class ThreadMoved(Conflict):
    """Another run has stored a checkpoint in this thread since the run began; nothing was stored."""

    def __init__(self, thread_id: str, expected: str | None, actual: str) -> None:
        super().__init__(
            f"thread {thread_id!r} is at checkpoint {actual}, this run continues from {expected}; "
            "run the graph again from the latest checkpoint"
        )
        self.thread_id = thread_id
        self.expected = expected
        self.actual = actual
