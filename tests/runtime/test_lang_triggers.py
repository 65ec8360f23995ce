"""Triggers that programs register: for events of the application and for the clock."""

from __future__ import annotations

from typing import Any

import pytest

from lash.model.process.process import HOST, Success
from lash.model.trigger.trigger import DeliveryState, FixedInput, WholeEvent
from lash.runtime.app import App
from lash.runtime.turns.turn import Turn
from tests.runtime.lang_kit import lang_app
from tests.runtime.process_bench import World, outcome_of

REGISTER = """
process review(event: github.PushEvent, web: Web, size: int) { finish { repo: event.repo, size: size } }
process p(web: Web) {
  handle = await triggers.register({ source: github.Push({ key: "lash" }), target: review,
                                     inputs: { event: trigger.event, web: web, size: 3 }, name: "reviews" })?
  finish { handle: handle, all: await triggers.list({ target: review })?,
           none: await triggers.list({ source_type: "clock.Every" })? }
}
"""
CANCEL = """
process review(event: github.PushEvent, web: Web, size: int) { finish 1 }
process p(handle: dict) {
  finish [await triggers.cancel({ handle: handle })?, await triggers.cancel({ handle: handle })?,
          len(await triggers.list({})?)]
}
"""
CLOCK = """
process digest(tick: clock.Tick) { finish tick.scheduled_at }
process p() {
  handle = await triggers.register({ source: clock.Every({ cron: "0 7 * * 1-5", time_zone: "Europe/Berlin" }),
                                     target: digest, inputs: { tick: trigger.event } })?
  finish handle
}
"""


async def _value(app: App, program: Any, **arguments: Any) -> Any:  # noqa: ANN401 (plain JSON)
    handle = await app.start(program, **arguments)
    await app.drain()
    outcome = await outcome_of(handle)
    assert isinstance(outcome, Success), outcome
    return outcome.value


async def test_a_program_registers_a_process_for_events(world: World) -> None:
    """An occurrence of the source starts the target, with the event and the fixed inputs; others start nothing."""
    app, engine = await lang_app(world)
    value = await _value(app, engine.process(REGISTER, "p"))
    handle = value["handle"]
    assert (handle["type"], handle["name"], handle["source_key"]) == ("trigger_handle", "reviews", "lash")
    assert value["all"] == [handle]
    assert value["none"] == []
    subscription = await app.storage.triggers.get(HOST, "reviews")
    assert subscription is not None
    web = {"__resource__": True, "type": "Web", "alias": "web"}
    assert subscription.definition.input_template == {
        "event": WholeEvent(),
        "web": FixedInput(value=web),
        "size": FixedInput(value=3),
    }
    await app.emit("github.push", {"repo": "other", "commits": 1}, key="1", source_key="another")
    report = await app.emit("github.push", {"repo": "lash", "commits": 1}, key="2", source_key="lash")
    (delivery,) = report.deliveries
    await app.drain()
    assert delivery.process_id is not None
    assert await outcome_of(app.handle(delivery.process_id)) == Success(value={"repo": "lash", "size": 3})
    bad = await app.emit("github.push", {"commits": 1}, key="3", source_key="lash")
    assert bad.deliveries[0].state is DeliveryState.REJECTED, "the payload is not of the declared type"
    assert await _value(app, engine.process(CANCEL, "p"), handle=handle) == [True, False, 0]


async def test_a_program_registers_a_process_for_the_clock(world: World) -> None:
    """A schedule is registered beside the subscription, and each tick starts the target."""
    app, engine = await lang_app(world)
    handle = await _value(app, engine.process(CLOCK, "p"))
    schedule = await app.storage.schedules.get(HOST, handle["name"])
    assert schedule is not None
    assert (schedule.definition.cron, schedule.definition.time_zone) == ("0 7 * * 1-5", "Europe/Berlin")
    await world.seconds(4 * 24 * 3_600)
    fired = await app.storage.schedules.fire_due()
    reports = [tick.report for each in fired for tick in each.ticks]
    await app.drain()
    (process_id,) = [each.process_id for report in reports if report for each in report.deliveries]
    assert process_id is not None
    outcome = await outcome_of(app.handle(process_id))
    assert isinstance(outcome, Success)
    assert str(outcome.value).startswith("20")


async def test_triggers_of_a_session_are_its_own(world: World) -> None:
    """A cell sees and cancels only the subscriptions of its session."""
    app, _ = await lang_app(world)
    answers: list[str] = []

    @app.agent
    async def cells(turn: Turn) -> str:
        result = await turn.run_cell(turn.text)
        answers.append(result.text)
        return result.text

    source = REGISTER.partition("process p")[0]
    register = f"""{source}
    h = await triggers.register({{ source: github.Push({{}}), target: review,
                                   inputs: {{ event: trigger.event, web: web, size: 1 }} }})?
    print len(await triggers.list({{}})?)
    """
    for session_id, text in (("one", register), ("two", "print len(await triggers.list({})?)"), ("one", register)):
        await app.session(session_id, agent=cells).send(text)
        await app.drain()
    assert answers == ["1", "0", "1"], "registering the same again changes nothing"


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("github.Push({})", "github.Push({ key: 1 })"), "takes"),
        (("event: trigger.event, ", ""), "not mapped"),
        (("size: 3", "size: 3, more: 1"), "has no `more`"),
        (("event: trigger.event", "event: {}"), "map `trigger.event`"),
        (("web: web, size: 3", 'web: "web", size: 3'), "needs a Web authority"),
    ],
)
async def test_a_registration_is_checked_before_it_runs(world: World, change: tuple[str, str], message: str) -> None:
    """The source, the target and every input are checked when the program is linked."""
    _, engine = await lang_app(world)
    source = REGISTER.replace('github.Push({ key: "lash" })', "github.Push({})").replace(*change)
    with pytest.raises(Exception, match=message):
        engine.process(source, "p")
