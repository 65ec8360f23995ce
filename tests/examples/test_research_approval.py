from __future__ import annotations

import pytest

import lash
from tests.examples.conftest import Model
from tests.examples.programs import Programs
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_EXAMPLE = "research_approval.py"
_REPORT = "In short: Sum up: You said: Who did it? You said: When was it? You said: What remains?"
_NEWS = f"The report on aqueducts, approved by ada: {_REPORT}"
_FIVE_CALLS = {
    f"aqueducts: {request}": 1 for request in ("plan", "Who did it?", "When was it?", "What remains?", "report")
}


async def test_an_approval_reaches_research_that_nobody_runs(
    programs: Programs, model: Model, backend_url: str
) -> None:
    """Killed while it waits and approved while no worker runs, the research continues later and repeats nothing."""
    arguments = ("aqueducts", "--pause", "0.2", "--url", backend_url)
    first = programs.start(_EXAMPLE, *arguments)
    key = first.read_until("mail: ").rpartition("/approve/")[2]
    await _until_it_waits(backend_url)
    first.process.kill()
    first.finish()
    assert first.lines == [
        "user: aqueducts",
        "assistant: I will look into aqueducts and come back to you.",
        f"mail: May the report on aqueducts be published? https://example.com/approve/{key}",
    ]

    assert programs.run(_EXAMPLE, "--approve", key, "--url", backend_url).lines == ["done"]
    async with lash.App(backend_url, worker=False) as app:
        assert not await app.reject(key, "rejected")
    second = programs.run(_EXAMPLE, *arguments)
    assert (second.process.returncode, second.errors()) == (0, "")
    assert second.lines == [
        "user: aqueducts",
        "assistant: I will look into aqueducts and come back to you.",
        f"event: {_NEWS}",
        f"assistant: News for you. {_NEWS}",
    ]
    assert model.calls() == _FIVE_CALLS
    assert await _outcomes(backend_url) == [lash.Success(value="published")]


async def test_a_rejection_withdraws_the_report(programs: Programs, backend_url: str) -> None:
    """A rejection by another program reaches the chat; a forged key decides nothing."""
    chat = programs.start(_EXAMPLE, "aqueducts", "--pause", "0", "--url", backend_url)
    key = chat.read_until("mail: ").rpartition("/approve/")[2]

    async with lash.App(backend_url, worker=False) as app:
        with pytest.raises(lash.InvalidInput, match="unknown wait key"):
            await app.resolve(f"{key[:-2]}{'AA' if key[-2:] != 'AA' else 'BB'}", "mallory")
    assert programs.run(_EXAMPLE, "--reject", key, "--url", backend_url).lines == ["done"]
    assert chat.finish() == 0
    assert chat.lines[-1] == "assistant: News for you. The report on aqueducts was not approved."
    assert await _outcomes(backend_url) == [lash.Success(value="withdrawn")]


async def _until_it_waits(url: str) -> None:
    """Return once the step that sends the mail is recorded: after an earlier kill it would be sent again."""
    async with await lash.open(url) as storage:
        with storage.hints.listen(everything=True) as hints:
            while await raw(url, "SELECT count(*) FROM lash_waits") != [(1,)]:
                await hints.wait(0.1)


async def _outcomes(url: str) -> list[object]:
    async with await lash.open(url) as storage:
        page = await storage.processes.list()
    return [record.projection.outcome for record in page.processes]
