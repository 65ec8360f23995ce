"""A new user's first steps: empty lists say what to do next, and errors say what may have been meant."""

from __future__ import annotations

import pytest

from tests.cli.kit import run


def test_empty_lists_say_what_to_do_next(backend_url: str) -> None:
    """The note is on standard error, so that a script counts no lines."""
    assert run("init", url=backend_url).returncode == 0
    for arguments, note in (
        ("sessions ls", "no sessions yet; start one with: lash ask SESSION TEXT --agent NAME"),
        ("sessions ls --owner ada", "no sessions match"),
        ("ps", "no processes; -a shows ended ones"),
        ("ps -a", "no processes; start one with: lash start MODULE:APP PROCESS"),
        ("ps --status failed", "no failed processes"),
        ("queue ls", "no queued work; lash queue dead lists what failed"),
        ("queue dead", "no dead letters"),
        ("workers ls", "no workers; start one with: lash worker MODULE:APP"),
        ("triggers ls", "no triggers; an application declares them with app.on(...) or app.cron(...)"),
        ("schedules ls", "no schedules; an application declares them with app.cron(...)"),
        ("records ls", "no records; a program stores them with storage.records.put(...)"),
        ("waits ls", "no open waits"),
        ("leases ls", "no live leases"),
        ("usage", "no tokens"),
    ):
        ended = run(*arguments.split(), url=backend_url)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", f"{note}\n"), arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sesions ls", "unknown command 'sesions'; did you mean 'sessions' or 'versions'? (see: lash --help)"),
        ("sche", "unknown command 'sche'; did you mean 'schedules'? (see: lash --help)"),
        ("sessions list", "unknown command 'list'; did you mean 'ls'? (see: lash sessions --help)"),
        ("sessions delete s", "unknown command 'delete'; did you mean 'rm'? (see: lash sessions --help)"),
        ("zzz", "unknown command 'zzz' (see: lash --help)"),
        ("usage --since soon", "expected an age such as 7d or a date such as 2026-11-16, got 'soon'"),
    ],
)
def test_errors_say_what_may_have_been_meant(arguments: str, message: str) -> None:
    """A wrong name is a usage error with similar names."""
    ended = run(*arguments.split())
    assert ended.returncode == 2
    assert message in ended.stderr


def test_help_and_singular_names() -> None:
    """``lash help X`` is ``lash X --help``, and a group may be named in the singular."""
    assert run("help", "sessions", "ls").stdout == run("sessions", "ls", "--help").stdout
    assert run("help").stdout == run("--help").stdout
    assert "\n  show " in run("session", "--help").stdout
    assert run("worker", "--help").stdout.startswith("Usage: lash worker [OPTIONS] MODULE:APP\n")
