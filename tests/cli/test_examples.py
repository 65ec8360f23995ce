"""Every example of every command runs as it is written, in a shell, on both backends."""

from __future__ import annotations

import asyncio
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lash.cli.command import Command
from lash.cli.root import root
from tests.cli.kit import PATIENCE_S, command, environment, run, write_program
from tests.cli.seed import Seeded, register_worker

pytestmark = pytest.mark.proof

APPLICATION = """
import os

import lash
from lash.lang.process.engine import Lashlang

app = lash.App(os.environ["LASH_URL"])
app.engine(Lashlang())


@app.agent
async def support(turn: lash.Turn) -> str:
    return "a keyboard"


@app.process
async def digest(ctx: lash.Context) -> None: ...


@app.process
async def refund(ctx: lash.Context, order: int) -> None: ...
"""
WITH_A_WORKER = {"ask", "mcp", "sessions watch", "watch", "web", "worker"}
"""Commands that need a worker, or do not end: see below, `tests.cli.test_conversation`, tests/proof/web and
tests/protocols/mcp."""

WITH_A_FRAMEWORK = {"import"}
"""Commands that need a framework, in whose environment they are tested: `make adapters`."""


def leaves(group: click.Group = root, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    """Return every command that is not a group, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from leaves(found, (*path, name))
        else:
            assert isinstance(found, Command), name
            yield " ".join((*path, name)), found


LEAVES = dict(leaves())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with ``lash`` on its path and an application to run."""
    (tmp_path / "bin").mkdir()
    write_program(tmp_path / "bin" / "lash")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "agents.py").write_text(APPLICATION)
    (tmp_path / "poll.lash").write_text("process poll(id: str) {\n  finish id\n}\n")
    return tmp_path


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in WITH_A_WORKER | WITH_A_FRAMEWORK])
def test_examples_succeed(name: str, seeded: Seeded, directory: Path) -> None:
    """The examples in the help of a command run in their order, and succeed."""
    if name == "db restore":
        made = run("db", "backup", "agents-backup.db", url=_other_storage(directory), cwd=directory)
        assert made.returncode == 0, made.stderr
    if name == "workers drain":
        asyncio.run(register_worker(seeded.url))
    variables = environment({**seeded.variables, "PATH": f"{directory / 'bin'}:/usr/bin:/bin"})
    for example in LEAVES[name].examples:
        ended = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {example}"],
            env=variables,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        refused = name == "db backup" and seeded.url.startswith("postgres")
        assert ended.returncode == (2 if refused else 0), (example, ended.stdout, ended.stderr)


def _other_storage(directory: Path) -> str:
    url = f"sqlite:///{directory / 'other.db'}"
    assert run("init", url=url).returncode == 0
    return url


def test_example_of_the_worker_works_until_it_is_told_to_stop(seeded: Seeded, directory: Path) -> None:
    """``lash worker`` works until SIGTERM and then exits with 0."""
    (example, *_) = LEAVES["worker"].examples
    variables = environment({**seeded.variables, "PATH": f"{directory / 'bin'}:/usr/bin:/bin"})
    log = directory / "worker.log"
    with log.open("wb") as stderr:
        # In a process of its own, which gets the signal.
        words = shlex.split(example)
        assert words[0] == "lash"
        worker = subprocess.Popen(command(*words[1:]), env=variables, cwd=directory, stderr=stderr)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "working" not in log.read_text():
            assert worker.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize("group", sorted({name.rpartition(" ")[0] for name in LEAVES}))
def test_lists_of_commands_cut_nothing(group: str) -> None:
    """The summary of a command in lists is a whole clause of its help."""
    listed = run(*group.split(), "--help").stdout.partition("\nCommands:\n")[2]
    assert len(listed.splitlines()) > 0
    assert "..." not in listed


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_help_and_an_example_of_itself(name: str) -> None:
    """The help of a command describes it and has an example."""
    leaf = LEAVES[name]
    assert leaf.help
    assert leaf.examples
    assert all(f"lash {name}" in example for example in leaf.examples)
