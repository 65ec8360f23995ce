from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import lash
from tests.examples.programs import Programs

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_EXAMPLE = "written_program.py"


async def test_a_program_survives_a_kill_and_waits_for_a_person(programs: Programs, backend_url: str) -> None:
    """Killed while it waits and answered while no worker runs, the program goes on and calls no tool twice."""
    arguments = ("--pause", "0.2", "--url", backend_url)
    first = programs.start(_EXAMPLE, *arguments)
    first.read_until("process: refunds")
    await _until_it_asks(backend_url)
    first.process.kill()
    first.finish()
    assert sorted(first.lines) == [
        "process: refunds",
        "tool: orders",
        "tool: tracked o2",
        "tool: tracked o3",
        "tool: tracked o4",
    ]
    asked = "Refund 800 cents for 2 lost orders?"
    assert programs.run(_EXAMPLE, "--answer", "yes", "--url", backend_url).lines == [f"answered: {asked}"]
    second = programs.run(_EXAMPLE, *arguments)
    assert (second.process.returncode, second.errors()) == (0, "")
    assert sorted(second.lines) == [
        "process: refunds",
        "result: ['o2: 700 cents', 'o4: 100 cents']",
        "tool: refund o2",
        "tool: refund o4",
    ]


async def test_a_mistake_is_shown_with_its_line(programs: Programs, backend_url: str, tmp_path: Path) -> None:
    """A program that calls what it was not given is not started."""
    file = tmp_path / "bad.py"
    file.write_text("found = orders()\nlaunch(found)\n")
    ended = programs.run(_EXAMPLE, str(file), "--url", backend_url)
    assert ended.process.returncode == 1
    assert "line 2: unresolved-reference: Name `launch` used when not defined" in ended.errors()


async def _until_it_asks(url: str) -> None:
    async with await lash.open(url) as storage, asyncio.timeout(60):
        while not await storage.waits.pending():  # noqa: ASYNC110 (another process opens the wait)
            await asyncio.sleep(0.05)
