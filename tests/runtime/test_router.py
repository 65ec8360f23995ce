"""Declarations in several modules, and one declared application for async and for blocking use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lash
import lash.sync
from lash.runtime.declarations import Declarations
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench

PATIENCE_S = 60.0


def billing() -> lash.Router:
    """Return a router as the module of a team would have it."""
    router = lash.Router()

    @router.agent
    async def clerk(turn: Turn) -> str:
        return f"clerk: {turn.text}"

    @router.process
    async def charge(ctx: Context, amount: int) -> int:
        return amount

    router.on("order.new", charge, inputs={"amount": lash.pointer("/amount")})
    router.cron("0 7 * * *", charge, inputs={"amount": 0})
    return router


async def test_an_app_runs_what_routers_declare(bench: Bench) -> None:
    """Agents, processes, subscriptions and schedules of a router, and of one that it includes, are the app's."""
    outer = lash.Router()
    outer.include(billing())
    app = await bench.app()
    app.include(outer)
    chat = app.session("s", "clerk")
    await chat.send("hello", key="k")
    report = await app.emit("order.new", {"amount": 7}, key="o")
    await app.drain()
    assert lash.text_of((await chat.messages())[-1]) == "clerk: hello"
    (started,) = report.started_process_ids
    assert await app.handle(started).result() == 7
    page = await app.storage.schedules.list()
    assert [schedule.key for schedule in page.schedules] == ["cron:charge"]
    assert app.find_process("charge").name == "charge"


def test_what_a_router_declares_later_needs_another_include() -> None:
    """Including a router twice is allowed, and adds what is new."""
    router, app = billing(), lash.App("sqlite://")
    app.include(router)

    @router.process
    async def refund(ctx: Context) -> None: ...

    with pytest.raises(lash.UnknownDefinition, match="registered: charge"):
        app.find_process("refund")
    app.include(router)
    assert app.find_process("refund") is refund


@pytest.mark.parametrize("make", [lash.Router, lambda: lash.App("sqlite://")])
def test_two_routers_cannot_declare_the_same_name(make: Callable[[], Declarations]) -> None:
    """The second agent or process of a name is refused, and the error names it."""
    target = make()
    target.include(billing())
    with pytest.raises(lash.ConfigError, match="'clerk' is declared twice"):
        target.include(billing())


def test_a_declared_app_for_blocking_use(backend_url: str) -> None:
    """``lash.sync.App`` takes an application that was declared as usual."""
    declared = lash.App(backend_url)
    declared.include(billing())
    with lash.sync.App(declared) as app:
        assert app.session("s", "clerk").ask("hello", timeout_s=PATIENCE_S) == "clerk: hello"
        assert app.start(app.find_process("charge"), amount=3).result(timeout_s=PATIENCE_S) == 3
    with pytest.raises(lash.ConfigError, match="unexpected option 'worker'"):
        lash.sync.App(declared, worker=False)  # type: ignore[call-overload]
