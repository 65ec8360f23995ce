"""`lash lang`: check, format and show programs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.cli.kit import run

SOURCE = "process poll(ci: Ci) { # wait\n  while true { x = await ci.status({})? if x { finish x } sleep for 2000 } }\n"
LAYOUT = """process poll(ci: Ci) {
  # wait
  while true {
    x = await ci.status({})?
    if x {
      finish x
    }
    sleep for 2000
  }
}
"""
WRONG = "process p() {\n  finish total\n}\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "poll.lash"
    path.write_text(SOURCE)
    return path


def test_check(program: Path) -> None:
    """A correct program is reported with what it needs; no storage is needed."""
    ended = run("lang", "check", str(program))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "no errors; needs Ci.status\n", "")
    found = msgspec.json.decode(run("lang", "check", str(program), "--json").stdout)
    assert found == {
        "processes": ["poll"],
        "modules": {},
        "types": {"Ci": ["status"]},
        "abilities": ["processes", "sleep"],
    }


def test_check_shows_the_line(tmp_path: Path) -> None:
    """An error is shown with its line and a caret, and the exit code is 1."""
    (tmp_path / "wrong.lash").write_text(WRONG)
    ended = run("lang", "check", "wrong.lash", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "lash: `total` is not defined in this process (processes do not see outer variables)\n"
        "--> line 2, column 10\n"
        "2 |   finish total\n"
        "             ^~~~~\n"
        "hint: add a parameter to `p` and pass the value\n"
    )


def test_fmt(program: Path) -> None:
    """A file is rewritten in the canonical layout once; --check changes nothing."""
    assert run("lang", "fmt", str(program), "--check").returncode == 1
    assert program.read_text() == SOURCE
    assert run("lang", "fmt", str(program)).returncode == 0
    assert program.read_text() == LAYOUT
    assert run("lang", "fmt", str(program), "--check").returncode == 0


def test_fmt_leaves_a_wrong_program_alone(tmp_path: Path) -> None:
    """A program that cannot be parsed is not written."""
    path = tmp_path / "wrong.lash"
    path.write_text("x = (1")
    assert run("lang", "fmt", str(path)).returncode == 1
    assert path.read_text() == "x = (1"


def test_graph(program: Path) -> None:
    """Effects and branches are listed with what can follow them; JSON has ids, nodes and edges."""
    lines = [" ".join(line.split()) for line in run("lang", "graph", str(program)).stdout.splitlines()]
    assert lines == [
        "ENTRY LINE KIND WHAT THEN",
        "poll 2 resource_operation 1 ci.status({}) 2",
        "poll 2 branch 2 if x 3 (yes), 4 (no)",
        "poll 2 terminal 3 finish x -",
        "poll 2 sleep 4 sleep for 2000 1 (repeat)",
    ]
    found = msgspec.json.decode(run("lang", "graph", str(program), "--json").stdout)
    assert [node["kind"] for node in found["nodes"]] == ["resource_operation", "branch", "terminal", "sleep"]
    assert {edge["when"] for edge in found["edges"]} == {None, "yes", "no", "repeat"}


APPLICATION = """
import lash
from lash.agents import tool
from lash.lang.process.engine import Lashlang

app = lash.App("sqlite:///agents.db")


@tool
async def fetch(url: str) -> str:
    "Return a page."
    return url


app.engine(Lashlang({"web": [fetch]}))
"""


def test_an_application_is_a_host(tmp_path: Path) -> None:
    """With --app a program is linked against the tools of the application, and no storage is opened."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    (tmp_path / "right.lash").write_text("submit await web.fetch({ url: 'x' })?\n")
    (tmp_path / "wrong.lash").write_text("submit await web.fetch({ address: 'x' })?\n")
    right = run("lang", "check", "right.lash", "--app", "shop:app", cwd=tmp_path)
    assert (right.returncode, right.stdout) == (0, "no errors; needs web.fetch\n"), right.stderr
    wrong = run("lang", "check", "wrong.lash", "--app", "shop:app", cwd=tmp_path)
    assert wrong.returncode == 1
    assert "`fetch` takes { url: str }, got { address: str }" in wrong.stderr
    assert run("lang", "check", "wrong.lash", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "agents.db").exists()


@pytest.mark.parametrize("command", ["check", "fmt", "graph"])
def test_files_that_cannot_be_read(command: str, tmp_path: Path) -> None:
    """A missing file, a directory and other bytes than UTF-8 are usage errors of one line."""
    (tmp_path / "bytes.lash").write_bytes(b"\xff\xfe")
    for name in ("missing.lash", ".", "bytes.lash"):
        ended = run("lang", command, name, cwd=tmp_path)
        assert ended.returncode == 2, ended
        assert len(ended.stderr.splitlines()) == 1
