"""Completion of commands, options and ids: the protocol of each shell, and bash itself."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import lash
from tests.cli.kit import environment, output, run, terminal
from tests.cli.seed import Seeded
from tests.cli.test_examples import LEAVES

BREAKS = " \t\n\"'@><=;|&(:"
"""The signs at which bash splits words."""
PATIENT = {"LASH_COMPLETE_S": "60"}
"""A loaded machine may need more than two seconds to read an id."""


def offered(line: str, url: str | None = None) -> list[str]:
    """Return what bash is offered for a line, as its script asks for it."""
    variables = {
        "_LASH_COMPLETE": "bash_complete",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_BREAKS": BREAKS,
        **PATIENT,
    }
    ended = run(url=url, variables=variables)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    return [each.removeprefix("plain,") for each in ended.stdout.splitlines() if each]


def test_commands_and_options_are_completed() -> None:
    """Names of commands, options and choices need no storage."""
    assert offered("lash se") == ["sessions"]
    assert offered("lash sessions s") == ["show"]
    assert offered("lash ps --st") == ["--status"]
    assert offered("lash ps -o ") == ["table", "json", "name"]
    assert offered("lash completion z") == ["zsh"]


def test_ids_are_completed(seeded: Seeded) -> None:
    """Every argument and option that is an id offers the ids that begin with what is typed."""
    for line, ids in {
        "lash sessions show ": ["support-42"],
        "lash sessions show sup": ["support-42"],
        "lash sessions show x": [],
        "lash ask s": ["support-42"],
        "lash logs re": ["report-3", "research-7"],
        "lash ps --session=s": ["support-42"],
        "lash queue requeue sup ": [seeded.batch],
        "lash triggers disable ": ["on-paid"],
        "lash schedules rm d": ["digest"],
        f"lash waits resolve {seeded.wait[:20]}": [seeded.wait],
        "lash workers drain ": [],
    }.items():
        assert offered(line, seeded.url) == ids, line
    assert offered(f"lash --url {seeded.url} logs rep", "sqlite:///other.db") == ["report-3"]
    words = {"COMP_WORDS": "lash logs rep", "COMP_CWORD": "2", "_LASH_COMPLETE": "zsh_complete", **PATIENT}
    assert run(url=seeded.url, variables=words).stdout == "plain\nreport-3\n_\n"
    words = {"COMP_WORDS": "lash logs rep", "COMP_CWORD": "rep", "_LASH_COMPLETE": "fish_complete", **PATIENT}
    assert run(url=seeded.url, variables=words).stdout.startswith("plain,report-3")


def test_only_the_piece_behind_a_colon_is_offered(backend_url: str) -> None:
    """Bash replaces the last piece of a word; ids that need escapes on a terminal are not offered."""

    async def fill() -> None:
        async with await lash.open(backend_url) as storage:
            for name in ("user:7:chat", "user:7:\x1b", "two words"):
                await storage.sessions.create(name)

    asyncio.run(fill())
    assert offered("lash sessions show user:7", backend_url) == ["7:chat"]
    assert offered("lash sessions show us", backend_url) == ["user:7:chat"]
    assert offered("lash sessions show 'two w", backend_url) == ["two words"]


@pytest.mark.parametrize("url", ["", "odd", "sqlite:///missing.db", "sqlite:///not-a-database", "postgresql://"])
def test_a_failure_is_silent_and_creates_nothing(url: str, tmp_path: Path) -> None:
    """Without a storage that can be read, no id is offered, nothing is written, and no file is created."""
    (tmp_path / "not-a-database").write_text("text")
    with socket.socket() as unheard:
        # Connections are accepted by the kernel, and never answered.
        unheard.bind(("127.0.0.1", 0))
        unheard.listen()
        where = f"{url}u@127.0.0.1:{unheard.getsockname()[1]}/d" if url.startswith("postgresql") else url
        variables = {"_LASH_COMPLETE": "bash_complete", "COMP_LINE": "lash logs ", "COMP_POINT": "10"}
        ended = run(url=where, variables=variables, cwd=tmp_path)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "", "")
    assert [each.name for each in tmp_path.iterdir()] == ["not-a-database"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_whole(shell: str) -> None:
    """Each script calls the command back; a shell that is installed accepts it."""
    script = output("completion", shell, url="")
    assert f"_LASH_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, capture_output=True)


def test_every_id_has_its_type() -> None:
    """Arguments and options named like ids complete ids; `chat`, `start` and `lang run` have another storage."""
    nouns = {"session_id", "session_ids", "process_id", "worker_id", "batch_ids", "source"}
    for name, leaf in LEAVES.items():
        for each in leaf.params:
            new = (name, each.name) in {("sessions import", "session_id"), ("sessions import", "source")}
            if each.name in nouns and not new and name not in ("chat", "start", "lang run", "db restore"):
                assert type(each.type).__name__ == "Noun", (name, each.name)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
def test_bash_completes_an_id(seeded: Seeded, backend_name: str, tmp_path: Path) -> None:
    """The Tab key completes an id at the prompt of bash, with a space behind it."""
    lash_ = tmp_path / "lash"
    lash_.write_text(f'#!/bin/sh\nexec {sys.executable} -m lash "$@"\n')
    lash_.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{environment()['PATH']}", "PS1": "ready> ", "TERM": "dumb", **PATIENT}
    with terminal(url=seeded.url, variables=variables, program=("bash", "--norc", "--noprofile", "-i")) as screen:
        screen.read_until("ready> ")
        screen.type('eval "$(lash completion bash)"; echo set\\ up\n')
        screen.read_until("\nset up")
        screen.type("lash sessions show sup\t-q\n")
        screen.read_until("support-42 -q\nsupport-42\n")
        screen.type("exit\n")
        assert screen.end() == 0
