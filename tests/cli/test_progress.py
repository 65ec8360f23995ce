"""Progress of long commands: a bar on terminals, nothing elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import run, terminal
from tests.cli.test_terminal import fill

ERASE = "\r\x1b[K"
LONG_WORK = {
    "init": ("migrate", ["init"]),
    "check": ("check", ["db", "check"]),
    "gc": ("find garbage", ["db", "gc", "--dry-run"]),
    "vacuum": ("count", ["db", "vacuum", "--dry-run"]),
    "backup": ("backup", ["db", "backup", "copy.db"]),
    "restore": ("restore", ["db", "restore", "saved.db", "--yes"]),
    "copy": ("copy sessions", ["db", "copy", "sqlite:///copied.db"]),
    "move": ("move rows", ["db", "move", "sqlite:///moved.db"]),
    "export": ("export lines", ["sessions", "export", "s0000", "s.jsonl"]),
    "import": ("read", ["sessions", "import", "saved.jsonl", "--as", "again"]),
}
"""The label of each bar, and the command that shows it."""
WITHOUT_END = {"migrate", "find garbage"}
"""Commands whose progress is unknown."""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A storage with some sessions, and files to import and restore."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    if request.node.callspec.params.get("name") != "init":
        fill(url, sessions=3)
        for arguments in (("db", "backup", "saved.db"), ("sessions", "export", "s0000", "saved.jsonl")):
            assert run(*arguments, url=url, cwd=tmp_path).returncode == 0
    return url


def frames(screen: str) -> list[str]:
    """Return the states of the bar, from first to last, without the output after it."""
    return [piece for piece in screen.split(ERASE)[1:] if piece and "\n" not in piece]


@pytest.mark.parametrize("name", LONG_WORK)
def test_a_bar_is_drawn_and_goes_away(name: str, url: str) -> None:
    """A terminal shows the bar up to its end, then only the result."""
    label, arguments = LONG_WORK[name]
    with terminal(*arguments, url=url) as screen:
        assert screen.end() == 0, screen.text
    shown = [frame for frame in frames(screen.text) if frame.startswith(f"{label}  [")]
    assert shown, screen.text
    if label not in WITHOUT_END:
        assert "100%" in shown[-1]
    said = screen.text.rpartition(ERASE)[2]
    assert said.endswith("\n")
    assert f"{label}  [" not in said


@pytest.mark.parametrize("name", LONG_WORK)
def test_a_pipe_gets_the_result_and_nothing_else(name: str, url: str, tmp_path: Path) -> None:
    """Standard error stays empty."""
    ended = run(*LONG_WORK[name][1], url=url, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize("name", ["copy"])
@pytest.mark.parametrize("columns", [12, 30, 44, 200])
def test_a_bar_fits_its_terminal(columns: int, name: str, url: str) -> None:
    """The bar takes one line of a terminal of any width, and the last column stays free."""
    label, arguments = LONG_WORK[name]
    with terminal(*arguments, url=url, columns=columns) as screen:
        assert screen.end() == 0
    widths = [len(frame) for frame in frames(screen.text) if frame.startswith(label[: columns - 1])]
    assert widths
    assert max(widths) < columns


@pytest.mark.parametrize("name", ["copy"])
def test_a_dumb_terminal_gets_no_bar(name: str, url: str) -> None:
    """A terminal that cannot erase gets no bar."""
    with terminal(*LONG_WORK[name][1], url=url, variables={"TERM": "dumb"}) as screen:
        assert screen.end() == 0
    assert "\x1b" not in screen.text
    assert "\r" not in screen.text


def test_ctrl_c_ends_long_work_quietly_and_it_goes_on_when_run_again(tmp_path: Path) -> None:
    """The bar is removed, the code is 130, and a second run finishes the copy."""
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    fill(url, sessions=150)
    arguments = ("db", "copy", f"sqlite:///{tmp_path / 'copied.db'}")
    with terminal(*arguments, url=url) as screen:
        screen.read_until("copy sessions")
        screen.type("\x03")
        assert screen.end() == 130
    assert screen.text.replace("^C", "").rstrip("\n").endswith(ERASE)
    assert "Traceback" not in screen.text
    assert run(*arguments, url=url).returncode == 0
    there = run("sessions", "ls", "--no-limit", "--json", url=arguments[2]).stdout
    assert len(there.splitlines()) == 150
