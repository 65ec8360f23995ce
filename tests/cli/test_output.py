"""The output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import lash
from lash.model.queue import Boundary, Claim
from lash.model.worker import Served
from tests.cli.kit import ageless, output, run, values
from tests.cli.seed import Seeded
from tests.contract.queue_state import joining
from tests.contract.test_input_agents import said
from tests.contract.test_worker import beat
from tests.factories.process import event
from tests.factories.session import acquired, append, chain, commit, created, node, owner


def test_sessions_are_listed(seeded: Seeded) -> None:
    """The list of sessions has the columns of a picker."""
    assert ageless(output("sessions", "ls", url=seeded.url)) == (
        "SESSION   NAME   STATE   REVISION   USER MSG   UPDATED   FIRST MESSAGE\n"
        "support-42   A refund   queued   2   2   AGE   Where is my money?"
    )


def test_tree_draws_branches_and_marks_the_active_path(seeded: Seeded) -> None:
    """The active path is a straight line; the replaced answer is a branch."""
    assert output("sessions", "tree", "support-42", url=seeded.url) == (
        "support-42  revision 2  root\n"
        "● ask  user: Where is my money?\n"
        "├─○ curt  assistant: Wait.\n"
        "● kind  assistant: It is on its way.\n"
        "● thanks  user: Thank you!  <- head\n"
    )


def test_tree_of_many_branches(backend_url: str) -> None:
    """Nested branches, several roots, and a head that is not a leaf are drawn."""

    async def fill() -> None:
        async with await lash.open(backend_url) as storage:
            await storage.sessions.create("s")
            nodes = (
                *(node("r"), *chain("a", "b", after="r"), *chain("c", "d", after="r"), node("e", "c")),
                *(*chain("f", "g", after="c"), node("h", "a"), node("other"), node("below", "other")),
            )
            await storage.session("s").commit(commit(0, graph=append(*nodes, leaf="c")))

    asyncio.run(fill())
    assert output("sessions", "tree", "s", url=backend_url) == (
        "s  revision 1  root\n"
        "├─○ other  user: other\n"
        "│ ○ below  user: below\n"
        "● r  user: r\n"
        "├─○ a  user: a\n"
        "│ ├─○ b  user: b\n"
        "│ ○ h  user: h\n"
        "● c  user: c  <- head\n"
        "├─○ d  user: d\n"
        "├─○ e  user: e\n"
        "○ f  user: f\n"
        "○ g  user: g\n"
    )
    told = values("sessions", "tree", "s", url=backend_url)
    assert [(each["node_id"], each["depth"]) for each in told if each["active"]] == [("r", 0), ("c", 1)]


def test_tree_without_line_signs_uses_plain_letters(seeded: Seeded) -> None:
    """If the encoding lacks the line characters, the tree is ASCII, and other text is escaped."""
    ended = run("sessions", "tree", "support-42", url=seeded.url, variables={"PYTHONIOENCODING": "ascii"})
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[1:3] == ["* ask  user: Where is my money?", "|-o curt  assistant: Wait."]


def test_show_tells_the_conversation(seeded: Seeded) -> None:
    """A session is shown with its head, its queue and its messages."""
    shown = output("sessions", "show", "support-42", url=seeded.url)
    for expected in ("revision:      2", "head:          thanks", "tokens:        15 by turn (m)", "dead letters:  1"):
        assert expected in shown
    assert shown.endswith("assistant  kind\nIt is on its way.\n\nuser  thanks\nThank you!\n")
    (last,) = values("sessions", "show", "support-42", "--last", "1", url=seeded.url)
    assert [each["node_id"] for each in last["nodes"]] == ["thanks"]
    assert (last["queued"], last["dead"], last["lease"]) == (1, 1, None)


def test_processes_are_listed(seeded: Seeded) -> None:
    """Running processes by default; with -a all, the newest first."""
    assert ageless(output("ps", url=seeded.url)) == (
        "PROCESS   LABEL   STATUS   DUE   EVENTS   CREATED   UPDATED   WAKES   REASON\n"
        "research-7   research   ready   -   2   AGE   AGE   -   -"
    )
    assert [each["process_id"] for each in values("ps", "-a", url=seeded.url)] == ["report-3", "research-7"]
    assert [each["status"] for each in values("ps", "--all", "--label", "report", url=seeded.url)] == ["completed"]


QUEUE = "SESSION BATCH STATE KIND ATTEMPTS QUEUED CONTENT"
DEAD = "SESSION BATCH ATTEMPTS DIED REASON CONTENT"


@pytest.mark.parametrize(
    ("arguments", "heading", "fields"),
    [
        (("queue", "ls"), QUEUE, {"attempts": 1, "state": "ready"}),
        (("queue", "ls", "--prefix", "support-", "--state", "ready"), QUEUE, {"attempts": 1, "state": "ready"}),
        (("queue", "dead", "--prefix", "support-"), DEAD, {"reason": "it failed 5 times"}),
        (("queue", "dead"), DEAD, {"reason": "it failed 5 times"}),
        (("triggers", "ls"), "KEY OWNER STATE SOURCE TYPE SOURCE KEY STARTS CREATED", {"enabled": True}),
        (("schedules", "ls"), "KEY OWNER CRON TIME ZONE STATE LAST TICK NEXT TICK", {"last_tick_ms": None}),
        (
            ("effects", "ls", "research-7"),
            "KEY KIND STATUS RECORDED DUE OUTCOME",
            {"outcome": ["a", "b"], "error": None},
        ),
        (("waits", "ls"), "WAIT SCOPE FOR QUESTION SINCE DEADLINE", {"resolution": None, "deadline_ms": None}),
    ],
)
def test_lists_have_a_heading_and_whole_values(
    arguments: tuple[str, ...], heading: str, fields: dict[str, Any], seeded: Seeded
) -> None:
    """Every list is a table for people and one JSON value a line for programs, defaults written out."""
    assert " ".join(output(*arguments, url=seeded.url).splitlines()[0].split()) == heading
    told = values(*arguments, url=seeded.url)
    assert told[0] | fields == told[0]


def test_logs_are_shown_in_order_from_where_one_asks(seeded: Seeded) -> None:
    """Events have a time, a number, a type and a payload, steps a dash; --after, --tail and --type filter them."""
    lines = output("logs", "research-7", url=seeded.url).splitlines()
    assert [line.split()[1:3] for line in lines] == [["1", "note"], ["2", "process.started"], ["-", "step"]]
    assert lines[1].endswith('  {"owner":"worker"}')
    assert lines[2].endswith('  completed  ["a","b"]')
    assert lines[0].endswith('  {"found":3}')
    for chosen in (("--after", "1"), ("--tail", "1"), ("--type", "process.started")):
        assert [each["sequence"] for each in values("logs", "research-7", *chosen, url=seeded.url)] == [2]
    assert output("logs", "research-7", "--tail", "0", url=seeded.url) == ""


async def _work(url: str) -> None:
    """Leave a process in its second run, which waits, and a turn that has called a tool."""
    app = lash.App(url, worker=False)

    async def pay() -> int:
        return 5

    @app.process
    async def job(ctx: lash.Context, run: int) -> None:
        if run == 1:
            await ctx.continue_as_new(2)
        await ctx.options(once=True).step(pay)
        await ctx.sleep(days=2)

    @app.agent
    async def clerk(turn: lash.Turn) -> str:
        turn.add_tool_call("c1", "search", {"order": 7}, "found it")
        await turn.step(pay)
        return "done"

    async with app:
        await app.starting(process_id="job-1").start(job, 1)
        await app.session("s", agent=clerk).send("hello")
        await app.drain()


def test_steps_runs_and_tools_are_named(backend_url: str) -> None:
    """``logs`` has the steps of the run with their outcomes, ``ps`` the number of the run, ``tree`` the tools."""
    asyncio.run(_work(backend_url))
    log = output("logs", "job-1", url=backend_url).splitlines()
    assert any(re.search(r"  process\.continued  \{.*\"run\":2", line) for line in log)
    assert any(re.search(r"  -  step 2/pay#1  completed  took [\d.e-]+ s  5$", line) for line in log)
    assert any(re.search(r"  -  sleep 2/sleep#1  running  until 2\d{3}-", line) for line in log)
    assert "job (run 2)" in output("ps", url=backend_url)
    tree = output("sessions", "tree", "s", url=backend_url)
    assert 'search {"order":7} search found it' in tree
    assert re.search(r"user: hello\n +\S+Z  pay#1  took [\d.e-]+ s\n", tree.replace("\u2502", " "))
    turn, step = output("logs", "s", url=backend_url).splitlines()
    assert re.search(r"Z  turn:\S+  revision 1  on \S+$", turn)
    assert re.search(r"^    \S+Z  pay#1  took [\d.e-]+ s$", step)
    (told,) = values("logs", "s", url=backend_url)
    assert [each["name"] for each in told["trace"]["steps"]] == ["pay#1"]
    assert values("sessions", "tree", "s", url=backend_url)[0]["trace"] == told["trace"]
    assert output("logs", "s", "--tail", "0", url=backend_url) == ""
    assert run("logs", "s", "--follow", url=backend_url).returncode == 2


async def _fail(url: str) -> None:
    """Leave a process that failed, and a dead letter."""
    app, once = lash.App(url, worker=False), lash.Retry(max_attempts=1)

    @app.process(retry=once)
    async def ship(ctx: lash.Context) -> None:
        raise LookupError("order 7")

    @app.agent(retry=once)
    async def clerk(turn: lash.Turn) -> str:
        raise ValueError("no clerk")

    async with app:
        await app.start(ship)
        await app.session("s", agent=clerk).send("hello")
        await app.drain()


def test_failures_are_shown_with_the_line_of_the_application(backend_url: str) -> None:
    """``ps`` has the reason, ``logs`` the traceback, and ``doctor`` warns of failures of both kinds."""
    asyncio.run(_fail(backend_url))
    (failed,) = values("ps", "--status", "failed", url=backend_url)
    reason = rf"LookupError: order 7 \({re.escape(__file__)}:\d+ in ship\)"
    assert re.search(reason, output("ps", "-a", url=backend_url))
    log = output("logs", failed["process_id"], url=backend_url)
    assert f'        Traceback (most recent call last):\n          File "{__file__}", line ' in log
    assert (log.count("Traceback"), log.count('raise LookupError("order 7")')) == (1, 1)
    letter = rf"ValueError: no clerk \({re.escape(__file__)}:\d+ in clerk\)"
    assert re.search(letter, output("queue", "dead", url=backend_url))
    checks = {each["name"]: each for each in values("doctor", url=backend_url)}
    processes, letters = checks["failed processes"], checks["dead letters"]
    assert processes["state"] == letters["state"] == "warn"
    newest = re.escape(f"1 in the last day: ship (1); the newest is {failed['process_id']}: ")
    assert re.search(newest + reason, processes["detail"])
    assert re.search(f"1, such as {letter} in session s", letters["detail"])


async def _leave_unserved(url: str) -> None:
    """Queue input for an agent and for none, beside a worker that takes only another agent."""
    async with await lash.open(url) as storage:
        announced = beat("a", served=Served(agents=("judge",)), beat_ms=60_000)
        await storage.work.poll(sessions=0, processes=0, owner=announced.owner, beat=announced)
        for session_id, agent in (("s", "clerk"), ("t", "judge"), ("u", None)):
            await created(storage, session_id)
            await storage.queue.enqueue(said(session_id, agent))


async def _leave_unlabelled(url: str) -> None:
    """Queue input for sessions with and without a label, beside a worker that takes only sessions with it."""
    async with await lash.open(url) as storage:
        announced = beat("a", served=Served(labels={"region": "eu", "gpu": "yes"}), beat_ms=60_000)
        await storage.work.poll(sessions=0, processes=0, owner=announced.owner, beat=announced)
        for session_id, region in (("in-eu", "eu"), ("in-us", "us")):
            await storage.sessions.create(session_id, labels={"region": region, "gpu": "yes"})
            await storage.queue.enqueue(said(session_id))


def test_doctor_names_sessions_whose_labels_no_worker_takes(backend_url: str) -> None:
    """The list of workers shows the labels that they take."""
    asyncio.run(_leave_unlabelled(backend_url))
    (check,) = [each for each in values("doctor", url=backend_url) if each["name"] == "workers"]
    assert (check["state"], check["detail"]) == (
        "warn",
        "no live worker takes the labels of in-us; see lash workers ls",
    )
    assert "sessions and processes with region=eu, gpu=yes" in output("workers", "ls", url=backend_url)


def test_doctor_names_the_agents_that_no_worker_takes(backend_url: str) -> None:
    """A message that no live worker takes is a warning, if workers run at all."""
    assert {each["name"]: each["detail"] for each in values("doctor", url=backend_url)}["workers"] == "0 live workers"
    asyncio.run(_leave_unserved(backend_url))
    (check,) = [each for each in values("doctor", url=backend_url) if each["name"] == "workers"]
    names = "clerk, input that names no agent"
    assert check == {
        "name": "workers",
        "state": "warn",
        "detail": f"no live worker takes {names}; see lash workers ls, and lash worker --agent",
    }
    assert "sessions of judge and processes" in output("workers", "ls", url=backend_url)


def test_lists_say_when_there_is_more(seeded: Seeded) -> None:
    """A truncated list says so on standard error; --no-limit shows all."""
    cut = run("ps", "-a", "--limit", "1", url=seeded.url)
    assert len(cut.stdout.splitlines()) == 2
    assert cut.stderr == "only the first 1 are shown; --no-limit shows all\n"
    assert run("ps", "-a", "--limit", "1", "--json", url=seeded.url).stderr == cut.stderr
    assert len(values("ps", "-a", "--limit", "1", "--no-limit", url=seeded.url)) == 2
    assert run("ps", "-a", "--limit", "2", url=seeded.url).stderr == ""


@pytest.mark.parametrize("arguments", [(), ("sessions",), ("db",)])
def test_nothing_asked_for_shows_the_help(arguments: tuple[str, ...]) -> None:
    """Without a subcommand the help is shown, without a storage, and the exit code is 0."""
    ended = run(*arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"Usage: {' '.join(('lash', *arguments))} ")
    assert "Commands:" in ended.stdout


def test_nothing_is_said_beside_the_output(seeded: Seeded) -> None:
    """An empty list leaves standard output empty, so that a script counts no lines."""
    ended = run("ps", "--status", "failed", url=seeded.url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "no failed processes\n")


def test_stored_text_cannot_drive_the_terminal(backend_url: str) -> None:
    """Escape sequences, line breaks and invisible characters in stored text are escaped."""
    hostile = "\x1b[2Jgone\r\nnext \u202eback\x07"

    async def fill() -> None:
        async with await lash.open(backend_url) as storage:
            await storage.sessions.create("s", name=hostile)
            await storage.session("s").commit(commit(0, node("a", None, hostile)))
            await storage.queue.enqueue(
                lash.model.BatchDraft(session_id="s", payloads=(lash.model.TurnInput.of_text(hostile),))
            )

    asyncio.run(fill())
    for arguments in (("sessions", "ls"), ("sessions", "tree", "s"), ("sessions", "show", "s"), ("queue", "ls")):
        shown = output(*arguments, url=backend_url)
        assert not set(shown) & set("\x1b\r\x07\u202e"), arguments
        assert "\\x1b[2Jgone" in shown, arguments
    assert len(output("sessions", "ls", url=backend_url).splitlines()) == 2
    (told,) = values("sessions", "ls", url=backend_url)
    assert told["meta"]["name"] == hostile


def test_a_long_log_is_shown_whole(backend_url: str) -> None:
    """More events than one page are shown without a gap."""

    async def fill() -> None:
        from tests.factories.process import process

        async with await lash.open(backend_url) as storage:
            await storage.processes.register(process("p"))
            await asyncio.gather(*(storage.events.append("p", event("note", number)) for number in range(1_100)))

    asyncio.run(fill())
    assert [each["sequence"] for each in values("logs", "p", url=backend_url)] == list(range(1, 1_101))


def test_no_count_and_no_list_stops_at_a_page(backend_url: str) -> None:
    """A queue of 1,001 batches and 101 dead letters are counted and listed whole, as a table and as JSON."""

    async def fill() -> None:
        async with await lash.open(backend_url) as storage:
            await storage.sessions.create("s")
            for texts in (range(101), range(1_001)):
                await asyncio.gather(*(storage.queue.enqueue(joining(str(text))) for text in texts))
                if len(texts) == 101:
                    await bury_all(storage)

    asyncio.run(fill())
    (shown,) = values("sessions", "show", "s", url=backend_url)
    assert (shown["queued"], shown["dead"]) == (1_001, 101)
    assert len(values("queue", "ls", "s", "--no-limit", url=backend_url)) == 1_001
    assert len(values("queue", "dead", "s", "--no-limit", url=backend_url)) == 101
    cut = run("queue", "ls", "--limit", "1000", "--json", url=backend_url)
    assert (len(cut.stdout.splitlines()), cut.stderr) == (
        1_000,
        "only the first 1,000 are shown; --no-limit shows all\n",
    )


async def bury_all(storage: lash.Storage) -> None:
    """Make dead letters of everything that is queued."""
    lease = acquired(await storage.leases.claim("s", owner("worker"), ttl_ms=60_000))
    while isinstance(claim := await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=60_000), Claim):
        await storage.queue.bury(claim, reason="no")
    await storage.leases.release(lease.fence)
