"""The source of a program on its page of the console, and in the output of a command."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.code.source import NAMESPACE
from tests.cli.kit import output, values
from tests.web.site import site

SOURCE = 'greeting = "<b>hello</b>"\ngreeting + " you"'
pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


async def _start(url: str) -> str:
    """Start one program and one durable function, and return the artifact of the program."""

    async def plain(ctx: lash.Context) -> None: ...

    async with lash.App(url, worker=False) as app:
        await app.starting(process_id="written").start(app.code_process("greeter"), SOURCE)
        await app.starting(process_id="plain").start(app.process(plain))
        (artifact,) = (await app.storage.artifacts.list(NAMESPACE)).artifacts
    return artifact.ref


async def test_the_page_of_a_process_shows_its_source(backend_url: str) -> None:
    """The page has the engine, the artifact and the numbered source, as text; other processes have no such part."""
    ref = await _start(backend_url)
    async with await lash.open(backend_url) as storage, site(storage) as visitor:
        page = await visitor.get("process?id=written")
        assert ref in page
        assert "   1  greeting = &#34;&lt;b&gt;hello" in page
        assert "<b>hello" not in page
        assert "Program" not in await visitor.get("process?id=plain")
        await storage.artifacts.delete(NAMESPACE, lash.model.ArtifactRef(ref))
    async with await lash.open(backend_url) as storage, site(storage) as visitor:
        assert "The artifact was deleted." in await visitor.get("process?id=written")


def test_the_command_names_engine_and_artifact(backend_url: str) -> None:
    """The command shows engine, program, version, artifact and source, for people and as JSON."""
    ref = asyncio.run(_start(backend_url))
    assert output("program", "written", url=backend_url).splitlines() == [
        "engine    code",
        "program   greeter",
        "version   1",
        f"artifact  {ref}",
        "",
        '   1  greeting = "<b>hello</b>"',
        '   2  greeting + " you"',
    ]
    (shown,) = values("program", "written", url=backend_url)
    assert shown == {
        "process_id": "written",
        "engine": "code",
        "program": "greeter",
        "version": "1",
        "artifact": ref,
        "source": SOURCE,
    }
    assert output("program", "written", "--source", url=backend_url) == f"{SOURCE}\n"
    assert output("program", "plain", url=backend_url).splitlines() == [
        "engine    python",
        "program   plain",
        "version   1",
    ]
