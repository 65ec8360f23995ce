"""Ten programs in sandboxed Python."""

from __future__ import annotations

from typing import Final

import lash
from lash.agents import tool
from lash.model.value import JSON
from lash.runtime.engine import Program
from tests.proof.programs.case import Calls, Case, Start

_APPROVAL: Final = "May the program call pay?"


def _case(
    name: str,
    source: str,
    result: JSON = None,
    *,
    calls: str,
    answers: dict[str, JSON] | None = None,
    failure: str | None = None,
) -> Case:
    def declare(app: lash.App, counted: Calls) -> Start:
        return Start(_program(app, counted), (source,), {"inputs": {"topic": "ink", "pause": counted.pause_s}})

    counts = dict.fromkeys(calls.split(", "), 1) if calls else {}
    return Case("code", name, declare, result, failure, counts, answers or {})


def _program(app: lash.App, calls: Calls) -> Program[..., JSON]:
    def look(item: str) -> int:
        calls.count(f"look {item}")
        return len(item)

    async def fetch(url: str) -> str:
        calls.count(f"fetch {url}")
        if url == "broken":
            raise ValueError("no such page")
        return f"page {url}"

    @tool(needs_approval=True)
    async def pay(euros: int) -> str:
        calls.count(f"pay {euros}")
        return f"paid {euros}"

    return app.code_process(tools=[look, fetch, pay])


CODE_CASES: Final = (
    _case("calls", "look(topic) + look('paper')", 8, calls="look ink, look paper"),
    _case(
        "gather",
        "import asyncio\nawait asyncio.gather(fetch('a'), fetch('b'), fetch('c'))",
        ["page a", "page b", "page c"],
        calls="fetch a, fetch b, fetch c",
    ),
    _case(
        "loop",
        "total = 0\nfor item in ['a', 'bb', 'ccc']:\n    total += look(item)\n    if total > 2:\n        break\ntotal",
        3,
        calls="look a, look bb",
    ),
    _case(
        "caught",
        "try:\n    text = await fetch('broken')\nexcept ValueError as error:\n    text = str(error)\n"
        "[text, await fetch('next')]",
        ["no such page", "page next"],
        calls="fetch broken, fetch next",
    ),
    _case(
        "sleep",
        "import time, asyncio\nfirst = look('a')\ntime.sleep(pause)\nawait asyncio.sleep(pause)\nfirst + look('bb')",
        3,
        calls="look a, look bb",
    ),
    _case(
        "question",
        "first = look('a')\n[ask_human('Which?'), ask_human('Sure?', {'type': 'boolean'}), look('bb')]",
        ["this", True, 2],
        calls="look a, look bb",
        answers={"Which?": "this", "Sure?": True},
    ),
    _case("approval", "[await pay(7), look('a')]", ["paid 7", 1], calls="pay 7, look a", answers={_APPROVAL: True}),
    _case(
        "lines",
        "import asyncio\nasync def line(name: str) -> str:\n    first = await fetch(name)\n"
        "    await asyncio.sleep(pause)\n    return first + await fetch(name + '2')\n"
        "await asyncio.gather(line('a'), line('b'))",
        ["page apage a2", "page bpage b2"],
        calls="fetch a, fetch a2, fetch b, fetch b2",
    ),
    _case("failure", "look('a')\nlook('bb')\n[][0]", failure="program_error", calls="look a, look bb"),
    _case(
        "chance",
        "import random, time, datetime\nfirst, luck = time.time(), random.random()\nlook('a')\ntime.sleep(pause)\n"
        "[time.time() - first >= pause, 0 <= luck < 1, look('b' if luck >= 0 else 'c'), "
        "datetime.date.today().year > 2000]",
        [True, True, 1, True],
        calls="look a, look b",
    ),
)
