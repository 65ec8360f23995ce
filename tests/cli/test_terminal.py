"""The command on a real terminal: colours, width, questions, Ctrl-C, and pipes that close early."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import lash
from tests.cli.kit import PATIENCE_S, command, environment, run, terminal
from tests.cli.seed import Seeded
from tests.factories.process import event, process
from tests.factories.session import commit, node

ESCAPE = "\x1b"
LONG = "word " * 60


def fill(url: str, sessions: int = 1) -> None:
    """Make sessions whose first message is long."""

    async def filling() -> None:
        async with await lash.open(url) as storage:
            for number in range(sessions):
                name = f"s{number:04}"
                await storage.sessions.create(name)
                await storage.session(name).commit(commit(0, node("a", None, LONG), session_id=name))

    asyncio.run(filling())


def test_colours_are_for_terminals(seeded: Seeded) -> None:
    """Headings and states have colours on a terminal, and none with NO_COLOR, on a dumb one, or in a pipe."""
    with terminal("ps", url=seeded.url) as screen:
        assert screen.end() == 0
        assert f"{ESCAPE}[32mready{ESCAPE}[0m" in screen.text
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        with terminal("ps", url=seeded.url, variables=variables) as screen:
            assert screen.end() == 0
            assert ESCAPE not in screen.text
    assert ESCAPE not in run("ps", url=seeded.url).stdout


def test_tables_fit_the_terminal_as_it_is_now(backend_url: str) -> None:
    """Text is cut to the current width of the terminal, also after a resize; a pipe gets all of it."""
    fill(backend_url)
    script = f"{sys.executable} -m lash sessions ls; read -r _; {sys.executable} -m lash sessions tree s0000"
    with terminal(url=backend_url, columns=70, variables={"NO_COLOR": "1"}, program=["bash", "-c", script]) as screen:
        screen.read_until("…")
        narrow = screen.text
        screen.resize(120)
        screen.type("\n")
        assert screen.end() == 0
        wide = screen.text[len(narrow) :].split("\n", 1)[1]
    assert max(map(len, narrow.splitlines())) == 70
    assert max(map(len, wide.splitlines())) == 120
    assert LONG.strip() in run("sessions", "ls", url=backend_url).stdout


def test_ids_are_never_cut(seeded: Seeded) -> None:
    """Ids are never cut, however narrow the terminal."""
    with terminal("queue", "dead", url=seeded.url, columns=20) as screen:
        assert screen.end() == 0
        assert seeded.batch in screen.text


def test_removing_asks_on_a_terminal(seeded: Seeded) -> None:
    """Answering no changes nothing and ends with 1; yes removes."""
    with terminal("sessions", "rm", "support-42", url=seeded.url) as screen:
        screen.read_until("permanently? [y/N]:")
        screen.type("n\n")
        assert screen.end() == 1
        assert "nothing was done" in screen.text
    with terminal("sessions", "rm", "support-42", url=seeded.url) as screen:
        screen.read_until("permanently? [y/N]:")
        screen.type("y\n")
        assert screen.end() == 0
        assert "deleted support-42" in screen.text


def test_ctrl_c_at_a_question_changes_nothing(seeded: Seeded) -> None:
    """Ctrl-C ends with 130, quietly, and nothing is removed."""
    with terminal("sessions", "rm", "support-42", url=seeded.url) as screen:
        screen.read_until("permanently? [y/N]:")
        screen.type("\x03")
        assert screen.end() == 130
        assert "Traceback" not in screen.text
    assert run("sessions", "show", "support-42", url=seeded.url).returncode == 0


def test_following_shows_what_is_appended_until_the_end(seeded: Seeded) -> None:
    """Appended events appear, also after a resize, until the process ends."""

    async def go_on(name: str, last: bool) -> None:  # noqa: FBT001 (a small helper)
        async with await lash.open(seeded.url) as storage:
            await storage.events.append("research-7", event("note", name))
            if last:
                await storage.processes.complete("research-7", lash.Success(value=1))

    with terminal("logs", "-f", "research-7", url=seeded.url) as screen:
        screen.read_until("process.started")
        asyncio.run(go_on("first", last=False))
        screen.read_until('"first"')
        screen.resize(40)
        asyncio.run(go_on("second", last=True))
        assert screen.end() == 0
    assert '"second"' in screen.text
    assert "process.completed" in screen.text.splitlines()[-1]


def test_ctrl_c_ends_following_quietly(seeded: Seeded) -> None:
    """Ctrl-C ends with 130 and prints nothing more."""
    with terminal("logs", "-f", "research-7", url=seeded.url) as screen:
        screen.read_until('["a","b"]')
        screen.type("\x03")
        assert screen.end() == 130
        said = screen.text[screen.text.index('["a","b"]') :].split("\n", 1)[1]
    assert said.replace("^C", "").strip() == ""


def test_following_into_a_pipe_is_not_held_back(seeded: Seeded) -> None:
    """Each event reaches a pipe at once, and a signal ends the command with the right code."""
    following = subprocess.Popen(
        command("logs", "-f", "research-7"),
        env=environment({"LASH_URL": seeded.url}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert following.stdout is not None
        assert [following.stdout.readline().split()[2] for _ in range(2)] == ["note", "process.started"]
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=PATIENCE_S)
        assert (following.returncode, out, err.strip()) == (130, "", "")
    finally:
        following.kill()
        following.wait()


def test_a_reader_that_leaves_ends_the_command_quietly(backend_url: str) -> None:
    """``| head`` ends a long output silently, with the exit code that a shell expects."""

    async def filling() -> None:
        async with await lash.open(backend_url) as storage:
            await storage.processes.register(process("p"))
            await asyncio.gather(*(storage.events.append("p", event("note", LONG)) for _ in range(600)))

    asyncio.run(filling())
    for arguments in (("logs", "p"), ("logs", "p", "--json"), ("logs", "-f", "p")):
        typed = f"{' '.join(command(*arguments))} | head -n 1; echo ${{PIPESTATUS[0]}}"
        ended = subprocess.run(
            ["bash", "-c", typed],
            env=environment({"LASH_URL": backend_url}),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.stderr == "", arguments
        assert ended.stdout.splitlines()[-1] == "141", arguments


def test_a_closed_output_ends_quietly(seeded: Seeded) -> None:
    """A closed standard output causes no traceback either."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            command("sessions", "ls"),
            env=environment({"LASH_URL": seeded.url}),
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")
