"""``lash lang run``: a program from a file, against the engine of an application."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.kit import run

APPLICATION = """
import os

import lash
from lash.agents import tool
from lash.lang import Lashlang

app = lash.App(os.environ["LASH_URL"])


@tool
async def look(item: str) -> int:
    "Look at an item."
    return len(item)


app.engine(Lashlang({"shop": [look]}))
plain = lash.App(os.environ["LASH_URL"])
"""
PROGRAM = """process count(shop: Shop, items: list[str]) {
  sizes = [await shop.look({item: item})? for item in items]
  sleep for 10
  finish sizes
}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "stall.py").write_text(APPLICATION)
    (tmp_path / "count.lash").write_text(PROGRAM)
    return tmp_path


def test_a_program_runs_and_its_result_is_printed(directory: Path) -> None:
    """The process is started, run by a worker of the command, and awaited."""
    variables = {"LASH_URL": f"sqlite:///{directory}/agents.db"}
    given = ("lang", "run", "count.lash", "--app", "stall", "--arg", 'items=["a", "bcd"]')
    done = run(*given, cwd=directory, variables=variables)
    assert json.loads(done.stdout) == [1, 3]
    assert done.stderr.startswith("process ")
    detached = run(*given, "--detach", "--id", "p1", cwd=directory, variables=variables)
    assert detached.stdout == "p1\n"


@pytest.mark.parametrize(
    ("source", "arguments", "code", "message"),
    [
        (PROGRAM.replace("look", "lok"), ("items=[]",), 1, "Shop has no operation `lok`\n--> line 2, column 18"),
        (
            PROGRAM.replace("finish sizes", "finish sizes.a"),
            ("items=[]",),
            1,
            "line 4, column 10\n4 |   finish sizes.a",
        ),
        (PROGRAM, (), 2, "process 'count' needs argument 'items'"),
        (PROGRAM, ("items=abc",), 2, "--arg items: expected JSON"),
        (PROGRAM, ("items",), 2, "--arg items: expected NAME=JSON"),
    ],
)
def test_errors_have_their_place(
    directory: Path, source: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    """A mistake in the program, before or during the run, is shown with its line and a caret."""
    variables = {"LASH_URL": f"sqlite:///{directory}/agents.db"}
    (directory / "count.lash").write_text(source)
    options = [part for each in arguments for part in ("--arg", each)]
    done = run("lang", "run", "count.lash", "--app", "stall", *options, cwd=directory, variables=variables)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_an_application_without_the_engine_says_so(directory: Path) -> None:
    """The error names the engines that there are."""
    variables = {"LASH_URL": f"sqlite:///{directory}/agents.db"}
    done = run("lang", "run", "count.lash", "--app", "stall:plain", cwd=directory, variables=variables)
    assert done.returncode == 3
    assert "engine 'lashlang'" in done.stderr
