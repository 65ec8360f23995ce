"""Tools and an engine for tests of programs."""

from __future__ import annotations

from typing import Any

import msgspec

from lash.agents.tools import Tool, tool
from lash.lang.machine.limits import Limits
from lash.lang.process.engine import Lashlang
from lash.runtime.app import App
from tests.runtime.process_bench import World


class Push(msgspec.Struct, frozen=True):
    repo: str
    commits: int = 0


def tools_of(world: World) -> list[Tool]:
    """Return tools whose calls the test counts."""

    @tool
    async def get(url: str, times: int = 1) -> dict[str, int]:
        """Return the size of a page."""
        world.count(f"get {url}")
        if url == "bad":
            raise ValueError("no such page")
        return {"size": len(url) * times}

    @tool(needs_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        world.count("pay")
        return f"paid {cents}"

    return [get, pay]


async def lang_app(world: World, *, limits: Limits | None = None, **options: Any) -> tuple[App, Lashlang]:  # noqa: ANN401
    """Return an open application with an engine whose programs can call ``web.get`` and ``web.pay``."""
    app = await world.app(**options)
    engine = Lashlang({"web": tools_of(world)}, events={"github.push": Push}, limits=limits)
    app.engine(engine)
    return app, engine
