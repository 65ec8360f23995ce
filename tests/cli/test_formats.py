"""The formats of the output: a table, JSON lines, or one id a line."""

from __future__ import annotations

import asyncio

import click
import pytest

import lash
from lash.model.limit import Rate
from tests.cli.kit import output, run, values
from tests.cli.seed import Seeded, register_worker
from tests.cli.test_examples import LEAVES

UNNAMED = {"usage", "counts", "doctor", "db report"}
"""Tables of numbers and findings, whose lines have no ids."""


def test_every_list_writes_ids(seeded: Seeded) -> None:
    """``-q`` and ``-o name`` write one id a line, the same that the table and JSON have."""
    asyncio.run(register_worker(seeded.url))
    expected = {
        "sessions ls": ["support-42"],
        "sessions show support-42": ["support-42"],
        "sessions tree support-42": ["ask", "curt", "kind", "thanks"],
        "ps -a": ["report-3", "research-7"],
        "queue dead": [seeded.batch],
        "triggers ls": ["on-paid"],
        "schedules ls": ["digest"],
        "effects ls research-7": ["search"],
        "waits ls": sorted([seeded.wait, seeded.other_wait]),
        "records ls": ["profiles"],
        "records ls profiles": ["ann"],
        "leases ls": ["support-42"],
        "workers ls": ["worker-1"],
    }
    for command, ids in expected.items():
        assert output(*command.split(), "-q", url=seeded.url).splitlines() == ids, command
    assert output("ps", "-a", "-o", "name", url=seeded.url) == output("ps", "-a", "--quiet", url=seeded.url)
    (queued,) = values("queue", "ls", url=seeded.url)
    assert output("-o", "name", "queue", "ls", url=seeded.url) == f"{queued['batch_id']}\n"


def test_commands_that_create_something_write_its_id(seeded: Seeded) -> None:
    """A script gets the id of a fork, and of the processes that an occurrence started."""
    assert output("sessions", "fork", "support-42", "what-if", "-q", url=seeded.url) == "what-if\n"
    started = output("triggers", "emit", "order.paid", "-q", url=seeded.url).splitlines()
    assert started == [each["process_id"] for each in values("ps", "--label", "ship", url=seeded.url)] != []
    assert output("schedules", "run", "digest", "-q", url=seeded.url) == ""


async def _reserve(url: str) -> None:
    async with await lash.open(url) as storage:
        for key in ("", "ann"):
            await storage.limits.reserve("api", key, rate=Rate(count=1, period_ms=3_600_000))


def test_limits_write_their_name_and_key(backend_url: str) -> None:
    """The key is behind a space; a limit without a key is its name."""
    asyncio.run(_reserve(backend_url))
    assert output("limits", "ls", "-q", url=backend_url) == "api\napi ann\n"


def test_an_empty_list_of_ids_is_silent(seeded: Seeded) -> None:
    """Nothing is written for xargs to take as an id; a list that was cut says so on standard error."""
    ended = run("ps", "--status", "failed", "-q", url=seeded.url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    cut = run("ps", "-a", "-q", "--limit", "1", url=seeded.url)
    assert (cut.stdout, cut.stderr) == ("report-3\n", "only the first 1 are shown; --no-limit shows all\n")


def test_other_commands_take_the_ids(seeded: Seeded) -> None:
    """What a list writes is what a command takes; `tests.cli.test_examples` runs the pipe."""
    ids = output("queue", "dead", "support-42", "-q", url=seeded.url).splitlines()
    assert output("queue", "requeue", "support-42", *ids, url=seeded.url) == f"requeued {seeded.batch}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("ps --json -q", "expected one output format, got --json and --quiet (see: lash ps --help)"),
        ("ps -o table --json", "expected one output format, got -o table and --json (see: lash ps --help)"),
        ("--json ps -o name", "expected one output format, got --json and -o name (see: lash ps --help)"),
        ("-o name counts", "lash counts writes no ids; use -o table or -o json (see: lash counts --help)"),
        ("ps -o yaml", "'yaml' is not one of 'table', 'json', 'name' (see: lash ps --help)"),
    ],
)
def test_contradicting_formats_are_refused(arguments: str, message: str) -> None:
    """Two different formats, and ids of what has none, are usage errors; nothing is read."""
    ended = run(*arguments.split(), url="sqlite:///unused.db")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.endswith(f"{message}\n")


def test_the_same_format_twice_is_allowed(seeded: Seeded) -> None:
    """``--json`` and ``-o json`` mean the same, wherever they stand."""
    assert output("--json", "ps", "-o", "json", url=seeded.url) == output("ps", "--json", url=seeded.url)


def test_every_list_has_the_options() -> None:
    """A command whose name is that of a list has ``-q``, and every command with a storage has ``-o``."""
    lists = {name for name in LEAVES if name.split()[-1] in ("ls", "ps", "dead")} | UNNAMED
    for name, leaf in LEAVES.items():
        options = {option for each in leaf.params if isinstance(each, click.Option) for option in each.opts}
        assert ("--url" in options) == ("--json" in options) == ("-o" in options), name
        if name in lists:
            assert ("-q" in options) == (name not in UNNAMED), name
