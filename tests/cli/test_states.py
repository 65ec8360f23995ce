"""What the command shows of work that sleeps, waits, retries or ticks, and what an operator can do about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import lash
from tests.cli.kit import output, run, values


async def asleep(ctx: lash.Context) -> None:
    await ctx.sleep(days=2)


async def approved(ctx: lash.Context) -> str:
    return str(await ctx.wait("approval", timeout_s=3 * 86_400))


async def signalled(ctx: lash.Context) -> None:
    await ctx.wait_signal("go")


async def flaky(ctx: lash.Context) -> None:
    raise RuntimeError("not yet")


async def broken(ctx: lash.Context) -> None:
    raise KeyError("once")


def worked(url: str, *starts: tuple[str, str]) -> None:
    """Start processes, each by its function and id, and run all that is ready."""

    async def work() -> None:
        app = lash.App(url, worker=False)
        child = app.process(asleep)

        @app.process
        async def parent(ctx: lash.Context) -> None:
            await (await ctx.start(child)).result()

        declared: dict[str, lash.ProcessDefinition[[], Any]] = {
            "asleep": child,
            "parent": parent,
            "approved": app.process(approved),
            "signalled": app.process(signalled),
            "flaky": app.process(retry=lash.Retry(max_attempts=2, first_pause_s=3_600))(flaky),
            "broken": app.process(retry=lash.Retry(max_attempts=1))(broken),
        }
        async with app:
            for name, process_id in starts:
                await app.starting(process_id=process_id).start(declared[name])
            await app.drain()

    asyncio.run(work())


def test_each_process_is_shown_in_its_state(backend_url: str) -> None:
    """Sleeping, waiting and retrying processes show what for and until when, --waiting finds them, REASON says why."""
    names = ("asleep", "approved", "signalled", "parent", "flaky", "broken")
    worked(backend_url, *((name, name) for name in names))
    shown = {line.split()[0]: line for line in output("ps", "-a", url=backend_url).splitlines()}
    for name, expected in (
        ("asleep", "sleeping  +2d"),
        ("approved", "waiting (wait approval)  +3d"),
        ("signalled", "waiting (signal go)  -"),
        ("parent", "waiting (child process)  -"),
        ("flaky", "retrying"),
        ("broken", "failed  -"),
    ):
        assert expected.split() == shown[name].split()[2 : 2 + len(expected.split())], shown[name]
    assert "KeyError: 'once'" in shown["broken"]
    waiting = {each["process_id"]: each["state"] for each in values("ps", "--waiting", url=backend_url)}
    assert waiting.keys() == {"asleep", "approved", "signalled", "parent", "flaky", "parent:start.asleep#1"}
    assert (waiting["approved"]["phase"], waiting["approved"]["waits_for"]) == ("waiting", "wait approval")


def test_a_sleep_is_shown_as_running_until_it_is_due(backend_url: str) -> None:
    """The step of a sleep is recorded at its start; the list shows it as running, with its due time."""
    worked(backend_url, ("asleep", "asleep"))
    (heading, row) = output("effects", "ls", "asleep", url=backend_url).splitlines()
    assert heading.split() == ["KEY", "KIND", "STATUS", "RECORDED", "DUE", "OUTCOME"]
    assert (row.split()[:3], row.split()[4]) == (["sleep#1", "sleep", "running"], "+2d")
    (effect,) = values("effects", "ls", "asleep", url=backend_url)
    assert effect["running"] is True


def test_an_operator_settles_a_wait_by_the_id_that_is_listed(backend_url: str) -> None:
    """What `waits ls` prints is accepted by `waits resolve` and `waits reject`; the first one stands."""
    worked(backend_url, ("approved", "first"), ("approved", "second"))
    rows = [line.split() for line in output("waits", "ls", url=backend_url).splitlines()[1:]]
    by_process = {row[2]: row for row in rows}
    assert by_process["first"][-1] == "+3d"
    ids = {name: row[0] for name, row in by_process.items()}
    resolved = run("waits", "resolve", ids["first"], '"yes"', url=backend_url)
    assert (resolved.returncode, resolved.stdout) == (0, "resolved\n")
    rejected = run("waits", "reject", ids["second"], "--code", "refused", "--message", "too dear", url=backend_url)
    assert (rejected.returncode, rejected.stdout) == (0, "rejected\n")
    again = run("waits", "reject", ids["first"], url=backend_url)
    assert (again.returncode, "yes" in again.stderr) == (4, True)
    assert run("waits", "resolve", "0" * 64, url=backend_url).returncode == 3
    worked(backend_url)
    ended = {each["process_id"]: each["projection"]["outcome"] for each in values("ps", "-a", url=backend_url)}
    assert ended["first"]["value"] == "yes"
    assert "too dear" in ended["second"]["message"]


def _scheduled(url: str) -> None:
    async def work() -> None:
        app = lash.App(url, worker=False)
        app.cron("0 7 1 1 *", app.process(broken), key="digest")
        async with app:
            pass

    asyncio.run(work())


def _states(url: str) -> list[str]:
    return [each["state"] for each in values("schedules", "ls", url=url)]


def test_a_schedule_is_disabled_enabled_run_and_removed(backend_url: str) -> None:
    """Each command acts on the key that is listed; a disabled schedule has no next tick, and restarts keep it off."""
    _scheduled(backend_url)
    assert _states(backend_url) == ["enabled"]
    assert output("schedules", "disable", "digest", url=backend_url) == "digest is disabled\n"
    _scheduled(backend_url)
    assert _states(backend_url) == ["disabled"]
    row = output("schedules", "ls", url=backend_url).splitlines()[1].split()
    assert row[-3:] == ["disabled", "-", "-"]
    assert "started" in output("schedules", "run", "digest", url=backend_url)
    assert [each["process_id"] for each in values("ps", url=backend_url)] != []
    assert output("schedules", "enable", "digest", url=backend_url) == "digest is enabled\n"
    assert output("schedules", "ls", url=backend_url).splitlines()[1].split()[-1].startswith("+")
    assert run("schedules", "rm", "digest", url=backend_url).returncode == 2
    dry = output("schedules", "rm", "digest", "--dry-run", url=backend_url)
    assert dry == "would remove schedule digest and its trigger\n"
    assert output("schedules", "rm", "digest", "--yes", url=backend_url) == "removed schedule digest and its trigger\n"
    assert (_states(backend_url), values("triggers", "ls", url=backend_url)) == ([], [])
    assert run("schedules", "run", "digest", url=backend_url).returncode == 3


def test_a_schedule_whose_trigger_is_disabled_starts_nothing_and_shows_it(backend_url: str) -> None:
    """Disabling the trigger is visible in the list of schedules, which shows no tick then."""
    _scheduled(backend_url)
    assert run("triggers", "disable", "digest", url=backend_url).returncode == 0
    assert _states(backend_url) == ["trigger disabled"]
    assert output("schedules", "ls", url=backend_url).splitlines()[1].split()[-1] == "-"
    assert "ticks start nothing" in output("schedules", "enable", "digest", url=backend_url)


@pytest.mark.parametrize("arguments", [("requeue", "s", "--all"), ("discard", "s", "--all", "--dry-run")])
def test_nothing_to_do_is_said(backend_url: str, arguments: tuple[str, ...]) -> None:
    """Requeuing or discarding all dead letters of a session without any prints a note, and succeeds."""

    async def create() -> None:
        async with await lash.open(backend_url) as storage:
            await storage.sessions.create("s")

    asyncio.run(create())
    ended = run("queue", *arguments, url=backend_url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "session 's' has no dead letters\n")
    assert run("queue", arguments[0], "unknown", *arguments[2:], url=backend_url).returncode == 3


def test_an_empty_url_is_an_error(backend_url: str) -> None:
    """An empty --url is not replaced by LASH_URL: a script whose variable is unset would use another storage."""
    ended = run("ps", "--url", "", url=backend_url)
    assert (ended.returncode, ended.stderr) == (
        2,
        "lash: --url is empty; expected a URL such as sqlite:///agents.db\n",
    )
