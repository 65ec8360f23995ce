"""Programs in lashlang."""

from __future__ import annotations

from typing import Final

import lash
from lash.agents import tool
from lash.lang.machine.limits import Limits
from lash.lang.process.engine import Lashlang
from lash.model.value import JSON
from tests.proof.programs.case import Calls, Case, Start


def _case(
    name: str,
    source: str,
    result: JSON = None,
    *,
    calls: str = "",
    answers: dict[str, JSON] | None = None,
    signals: tuple[tuple[str, JSON], ...] = (),
    failure: str | None = None,
    limits: Limits | None = None,
) -> Case:
    def declare(app: lash.App, counted: Calls) -> Start:
        engine = _engine(counted, limits)
        app.engine(engine)
        program = engine.process(source, "p")
        pause = {"pause": counted.pause_s * 1_000} if "pause" in program.parameters else {}
        return Start(program, (), pause)

    counts = dict.fromkeys(calls.split(", "), 1) if calls else {}
    return Case("lang", name, declare, result, failure, counts, answers or {}, signals)


def _engine(calls: Calls, limits: Limits | None) -> Lashlang:
    @tool
    def look(item: str) -> int:
        """Look."""
        calls.count(f"look {item}")
        return len(item)

    @tool
    async def fetch(url: str) -> str:
        """Fetch."""
        calls.count(f"fetch {url}")
        if url == "broken":
            raise ValueError("no such page")
        return f"page {url}"

    @tool(needs_approval=True)
    async def pay(euros: int) -> str:
        """Pay."""
        calls.count(f"pay {euros}")
        return f"paid {euros}"

    return Lashlang({"web": [look, fetch, pay]}, limits=limits)


LANG_CASES: Final = (
    _case(
        "calls",
        "process p(web: Web) { finish await web.look({item: 'ink'})? + await web.look({item: 'paper'})? }",
        8,
        calls="look ink, look paper",
    ),
    _case(
        "batch",
        "process p(web: Web) { r = await {a: web.fetch({url: 'a'})?, b: [web.fetch({url: 'b'}), 1],"
        " c: web.fetch({url: 'broken'})} finish [r.a, r.b[0].value, r.c.error] }",
        ["page a", "page b", "ValueError: no such page"],
        calls="fetch a, fetch b, fetch broken",
    ),
    _case(
        "loop",
        "process p(web: Web) { total = 0 for item in ['a', 'bb', 'ccc'] { total = total + await web.look({item: item})?"
        " if total > 2 { break } } finish total }",
        3,
        calls="look a, look bb",
    ),
    _case(
        "looked_at",
        "process p(web: Web) { r = web.fetch({url: 'broken'}) if not r.ok { x = await web.fetch({url: 'next'})? }"
        " finish [r.error, x] }",
        ["ValueError: no such page", "page next"],
        calls="fetch broken, fetch next",
    ),
    _case(
        "sleep",
        "process p(web: Web, pause: float) { a = await web.look({item: 'a'})? sleep for pause"
        " sleep until '2001-01-01T00:00:00Z' sleep for pause finish a + await web.look({item: 'bb'})? }",
        3,
        calls="look a, look bb",
    ),
    _case(
        "children",
        "process child(web: Web, item: str, pause: float) { sleep for pause finish await web.look({item: item})? }"
        " process p(web: Web, pause: float) { runs = {} for item in ['a', 'bb'] {"
        " runs[item] = start child(web: web, item: item, pause: pause) } done = await runs"
        " finish [done.a.value, done.bb.value, await web.look({item: 'ccc'})?] }",
        [1, 2, 3],
        calls="look a, look bb, look ccc",
    ),
    _case(
        "signals",
        "process p(web: Web) signals { s: int, t: int } { got = [] for i in range(2) {"
        " got = push(got, wait_signal('s')) a = await web.look({item: to_string(i)})? }"
        " finish push(got, wait_signal('t')) }",
        [1, 2, 9],
        calls="look 0, look 1",
        signals=(("t", 9), ("s", 1), ("s", 2)),
    ),
    _case(
        "approval",
        "process p(web: Web) { finish [await web.pay({euros: 7})?, await web.look({item: 'a'})?] }",
        ["paid 7", 1],
        calls="pay 7, look a",
        answers={"Run the tool pay?": True},
    ),
    _case(
        "events",
        "process p(web: Web) { for i in range(2) { yield {i: i} a = await web.look({item: to_string(i)})? wake a } }",
        calls="look 0, look 1",
    ),
    _case(
        "failure",
        "process p(web: Web) { a = await web.look({item: 'a'})? fail {why: a} }",
        failure="process_failed",
        calls="look a",
    ),
    _case(
        "break",
        "process p(web: Web) { a = await web.look({item: 'a'})? yield a finish a.b }",
        failure="process_runtime_error",
        calls="look a",
    ),
    _case(
        "checkpoints",
        "process p(web: Web, pause: float) { sizes = {} for i in range(5) { for j in [i] {"
        " sizes[to_string(i)] = await web.look({item: to_string(i)})? if i == 3 { sleep for pause } } }"
        " finish keys(sizes) }",
        ["0", "1", "2", "3", "4"],
        calls="look 0, look 1, look 2, look 3, look 4",
        limits=Limits(checkpoint_every=2),
    ),
)
