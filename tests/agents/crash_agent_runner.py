"""Runs workers for an agent, each killed at a point; ``python -m tests.agents.crash_agent_runner``."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path

from tests.agents.crash_agent import build, is_finished
from tests.runtime.crash_runner import serve, work


def _child(order: dict[str, str | None]) -> int:
    try:
        asyncio.run(work(str(order["url"]), Path(str(order["directory"])), order["point"], build, is_finished))
    except BaseException:  # noqa: BLE001 (the parent knows the child by its exit code alone)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(_child)
