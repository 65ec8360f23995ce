"""The effects of commands on a storage, read through the storage itself."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

import lash
from tests.cli.kit import output, run, values
from tests.cli.seed import Seeded, register_worker
from tests.factories.session import acquired, owner
from tests.factories.trigger import trigger
from tests.raw import raw

T = TypeVar("T")


def ask(url: str, question: Callable[[lash.Storage], Awaitable[T]]) -> T:
    """Open the storage and read from it."""

    async def asking() -> T:
        async with await lash.open(url, migrate=False) as storage:
            return await question(storage)

    return asyncio.run(asking())


def test_init_creates_once_and_says_so(empty_url: str) -> None:
    """The first init creates, the second changes nothing; a dry run of migrate applies nothing."""
    (dry,) = values("db", "migrate", "--dry-run", url=empty_url)
    assert (dry["created"], dry["dry_run"]) == (False, True)
    assert dry["migrations"][0] == "0001_sessions"
    assert run("ps", url=empty_url).returncode == 6
    (made,) = values("init", url=empty_url)
    assert (made["created"], made["migrations"]) == (True, dry["migrations"])
    (again,) = values("db", "migrate", url=empty_url)
    assert (again["created"], again["migrations"]) == (False, [])


def test_removing_asks_unless_told(seeded: Seeded) -> None:
    """Nothing is removed by a dry run, without --yes and a terminal, or if one name is unknown."""
    dry = run("sessions", "rm", "support-42", "--dry-run", url=seeded.url)
    assert (dry.returncode, dry.stdout) == (0, "would delete support-42: 4 nodes, 1 queued batch\n")
    assert run("sessions", "rm", "support-42", url=seeded.url).returncode == 2
    both = run("sessions", "rm", "support-42", "unknown", "--yes", url=seeded.url)
    missing = "lash: session 'unknown' does not exist; see lash sessions ls; nothing was done\n"
    assert (both.returncode, both.stderr) == (3, missing)
    assert ask(seeded.url, lambda storage: storage.sessions.open("support-42")) is not None
    gone = run("sessions", "rm", "support-42", "--yes", url=seeded.url)
    assert (gone.returncode, gone.stdout) == (0, "deleted support-42\n")
    assert run("sessions", "show", "support-42", url=seeded.url).returncode == 3


def test_each_deletion_is_reported_as_it_is_done(seeded: Seeded) -> None:
    """A failure at the second session does not hide that the first one is gone."""
    run("sessions", "fork", "support-42", "kept", url=seeded.url)
    run("sessions", "fork", "support-42", "gone", url=seeded.url)
    asyncio.run(raw(seeded.url, "CREATE TABLE blocks (k BIGINT NOT NULL REFERENCES lash_sessions (session_key))"))
    kept = "SELECT session_key FROM lash_sessions WHERE session_id = 'kept'"
    asyncio.run(raw(seeded.url, f"INSERT INTO blocks {kept}"))
    ended = run("sessions", "rm", "gone", "kept", "--yes", url=seeded.url)
    assert (ended.returncode != 0, ended.stdout) == (True, "deleted gone\n")
    assert {each["meta"]["session_id"] for each in values("sessions", "ls", url=seeded.url)} == {"support-42", "kept"}


def test_fork_continues_from_a_node(seeded: Seeded) -> None:
    """A fork has the path to the node; forking again is idempotent, and a taken id is a conflict."""
    made = run("sessions", "fork", "support-42", "curtly", "--node", "curt", "--name", "Curt", url=seeded.url)
    assert (made.returncode, made.stdout) == (0, "forked support-42 as curtly\n")
    assert [each["node_id"] for each in values("sessions", "tree", "curtly", url=seeded.url)] == ["ask", "curt"]
    forks = values("sessions", "ls", "--fork-of", "support-42", url=seeded.url)
    assert [each["meta"]["session_id"] for each in forks] == ["curtly"]
    assert values("ps", "-a", "--parent", "research-7", url=seeded.url) == []
    again = run("sessions", "fork", "support-42", "curtly", "--node", "curt", url=seeded.url)
    assert (again.returncode, again.stdout) == (0, "curtly is already a fork of support-42\n")
    assert run("sessions", "fork", "support-42", "x", "--node", "none", url=seeded.url).returncode == 3
    assert run("sessions", "fork", "curtly", "support-42", url=seeded.url).returncode == 4


def test_a_signal_with_a_key_is_sent_once(seeded: Seeded) -> None:
    """Two signals with one key are one event with the given payload, also from standard input."""
    sent = run("signal", "research-7", "approve", '{"by": "ada"}', "--key", "k", url=seeded.url)
    assert (sent.returncode, sent.stdout) == (0, "signal approve is event 3 of research-7\n")
    again = run("signal", "research-7", "approve", "-", "--key", "k", url=seeded.url, given='{"by": "ada"}')
    assert again.stdout == "signal approve was sent before as event 3 of research-7\n"
    found = ask(seeded.url, lambda storage: storage.events.signal_at("research-7", "approve", 1))
    assert found is not None
    assert found.payload == {"by": "ada"}


def test_cancel_asks_a_process_to_stop(seeded: Seeded) -> None:
    """The request and its reason are durable; an ended process cannot be cancelled."""
    asked = run("cancel", "research-7", "--reason", "enough", url=seeded.url)
    assert (asked.returncode, asked.stdout) == (0, "asked process research-7 to stop\n")
    record = ask(seeded.url, lambda storage: storage.processes.get("research-7"))
    assert record is not None
    assert (record.projection.cancel_requested, record.projection.cancel_reason) == (True, "enough")
    assert "cancelling" in run("ps", url=seeded.url).stdout
    ended = run("cancel", "report-3", url=seeded.url)
    assert (ended.returncode, ended.stderr) == (4, "lash: process 'report-3' has already ended: completed\n")


def test_cancel_of_a_turn_is_queued_for_the_session(seeded: Seeded) -> None:
    """The command is queued with its reason; a session without a turn has nothing to cancel."""
    asked = run("cancel", "--session", "support-42", "--reason", "enough", url=seeded.url)
    assert (asked.returncode, asked.stdout) == (0, "asked the turn of session support-42 to stop\n")
    (order,) = ask(seeded.url, lambda storage: storage.queue.list("support-42"))[-1].payloads
    assert isinstance(order, lash.model.SessionCommand)
    assert order.reason == "enough"
    ask(seeded.url, lambda storage: storage.sessions.create("quiet"))
    quiet = run("cancel", "--session", "quiet", url=seeded.url)
    assert (quiet.returncode, quiet.stderr) == (4, "lash: session 'quiet' has no running turn\n")
    assert run("cancel", "--session", "unknown", url=seeded.url).returncode == 3
    assert ask(seeded.url, lambda storage: storage.sessions.open("unknown")) is None


def test_dead_letters_are_requeued_and_discarded(seeded: Seeded) -> None:
    """A requeued letter is queued again under its id; a discarded one is gone."""
    assert run("queue", "requeue", "support-42", seeded.batch, url=seeded.url).stdout == f"requeued {seeded.batch}\n"
    queued = ask(seeded.url, lambda storage: storage.queue.list("support-42"))
    assert queued[-1].batch_id == seeded.batch
    assert run("queue", "requeue", "support-42", seeded.batch, url=seeded.url).returncode == 3
    assert run("queue", "discard", "support-42", seeded.batch, "--yes", url=seeded.url).returncode == 3
    assert run("queue", "discard", "support-42", url=seeded.url).returncode == 2


def test_discard_removes_a_dead_letter_for_good(seeded: Seeded) -> None:
    """Only --yes removes it; a dry run lists it."""
    dry = run("queue", "discard", "support-42", "--all", "--dry-run", url=seeded.url)
    assert dry.stdout == f"would discard {seeded.batch}\n"
    assert run("queue", "discard", "support-42", "--all", url=seeded.url).returncode == 2
    assert len(ask(seeded.url, lambda storage: storage.queue.dead())) == 1
    assert run("queue", "discard", "support-42", "--all", "--yes", url=seeded.url).returncode == 0
    assert ask(seeded.url, lambda storage: storage.queue.dead()) == ()


def test_triggers_are_switched_and_emitted_to(seeded: Seeded) -> None:
    """A disabled trigger starts nothing; an enabled one starts a process once for each key."""
    assert run("triggers", "disable", "on-paid", url=seeded.url).stdout == "on-paid is disabled\n"
    (quiet,) = values("triggers", "emit", "order.paid", "--key", "1", url=seeded.url)
    assert quiet["deliveries"] == []
    assert run("triggers", "enable", "on-paid", url=seeded.url).stdout == "on-paid is enabled\n"
    (first,) = values("triggers", "emit", "order.paid", '{"order": 7}', "--key", "2", url=seeded.url)
    (again,) = values("triggers", "emit", "order.paid", '{"order": 7}', "--key", "2", url=seeded.url)
    assert [each["state"] for each in first["deliveries"]] == ["started"]
    assert again == first
    assert run("triggers", "emit", "order.paid", '{"order": 8}', "--key", "2", url=seeded.url).returncode == 4
    assert run("triggers", "enable", "none", url=seeded.url).returncode == 3
    assert run("triggers", "enable", "on-paid", "--session", "support-42", url=seeded.url).returncode == 3


def test_a_rejected_delivery_ends_with_1(seeded: Seeded) -> None:
    """The occurrence is recorded, and the exit code reports the rejected delivery."""

    async def strict(storage: lash.Storage) -> None:
        source_key = storage.triggers.source_key("order.paid")
        draft = trigger("strict", source_type="order.paid", source_key=source_key, payload_schema={"type": "object"})
        await storage.triggers.register(draft)

    ask(seeded.url, strict)
    ended = run("triggers", "emit", "order.paid", "7", "--key", "9", url=seeded.url)
    assert (ended.returncode, ended.stderr) == (1, "lash: 1 delivery rejected\n")
    assert "started" in ended.stdout
    assert "rejected" in ended.stdout


def test_waits_are_resolved_once(seeded: Seeded) -> None:
    """The first resolution stands; a second one is a conflict, and a changed key is unknown."""
    (asked,) = [each["ask"] for each in values("waits", "ls", url=seeded.url) if each["key_id"] == seeded.wait]
    assert asked["text"] == "Pay the refund?"
    assert asked["schema"]["properties"] == {"approved": {"type": "boolean"}}
    wrong = run("waits", "resolve", seeded.wait, '{"approved": "yes"}', url=seeded.url)
    assert wrong.returncode == 2
    assert "the answer to 'Pay the refund?': value.approved" in wrong.stderr
    first = run("waits", "resolve", "-", '{"approved": true}', url=seeded.url, given=f"{seeded.key}\n")
    assert (first.returncode, first.stdout) == (0, "resolved\n")
    second = run("waits", "reject", seeded.key, "--code", "no", url=seeded.url)
    assert second.returncode == 4
    assert '"approved":true' in second.stderr
    assert run("waits", "resolve", seeded.key[:-1] + "x", url=seeded.url).returncode == 3
    found = ask(seeded.url, lambda storage: storage.waits.get(seeded.key))
    assert found is not None
    assert found.resolution == lash.model.Resolved(value={"approved": True})
    assert len(values("waits", "ls", url=seeded.url)) == 1


def test_prune_counts_asks_and_forgets(seeded: Seeded) -> None:
    """A dry run only counts; pruning removes the named kinds, once."""
    everything = ("db", "prune", "--older-than", "0s")
    (found,) = values(*everything, "--dry-run", url=seeded.url)
    assert found["dry_run"]
    assert {kind: count for kind, count in found["rows"].items() if count} == {"processes": 1}
    assert re.search(r"^processes +1 +ended", output(*everything, "--dry-run", url=seeded.url), re.MULTILINE)
    assert values("db", "prune", "--older-than", "1d", "--yes", url=seeded.url)[0]["rows"]["processes"] == 0
    assert run(*everything, url=seeded.url).returncode == 2
    (pruned,) = values(*everything, "--only", "processes", "--yes", url=seeded.url)
    assert pruned["rows"] == {"processes": 1}
    assert [record["process_id"] for record in values("ps", "--all", url=seeded.url)] == ["research-7"]
    assert values(*everything, "--only", "processes", "--yes", url=seeded.url)[0]["rows"] == {"processes": 0}


@pytest.mark.parametrize("age", ["", "30", "d", "3w", "-1d", "1.5h", "1d2h"])
def test_what_is_no_age_prunes_nothing(age: str) -> None:
    """The usage is shown before a storage is opened."""
    ended = run("db", "prune", "--older-than", age, "--yes", url="sqlite:///none.db")
    assert ended.returncode == 2
    assert "expected a number and one of y, d, h, m, s" in ended.stderr


def test_vacuum_deletes_removed_nodes(seeded: Seeded) -> None:
    """Removed nodes are counted once and then gone; a dry run keeps them."""
    ask(seeded.url, lambda storage: storage.session("support-42").tombstone(["curt"]))
    assert run("db", "vacuum", "--dry-run", url=seeded.url).stdout == "would delete 1 removed node of 1 session\n"
    assert run("db", "vacuum", url=seeded.url).returncode == 2
    (first,) = values("db", "vacuum", "--yes", url=seeded.url)
    (second,) = values("db", "vacuum", "support-42", "--yes", url=seeded.url)
    assert (first["removed_node_count"], second["removed_node_count"]) == (1, 0)
    assert run("db", "vacuum", "unknown", "--yes", url=seeded.url).returncode == 3


def test_report_counts_rows(seeded: Seeded) -> None:
    """The report names every noun; on SQLite, where counts are exact, it counts rows."""
    (told,) = values("db", "report", url=seeded.url)
    assert {"session", "node", "process", "queue", "trigger"} <= told["nouns"].keys()
    if seeded.url.startswith("sqlite"):
        assert told["nouns"]["node"]["rows"] >= 4


def test_counts_are_by_state(seeded: Seeded) -> None:
    """The counts name every state, as a table and as one JSON object."""
    (told,) = values("counts", url=seeded.url)
    assert told["sessions"].keys() == {"running", "queued", "waiting", "idle"}
    assert sum(told["sessions"].values()) >= 1
    assert told["processes"].keys() == {"running", "completed", "failed", "cancelled", "abandoned"}
    shown = output("counts", url=seeded.url)
    assert shown.splitlines()[0].split() == ["WHAT", "STATE", "COUNT"]
    assert len(shown.splitlines()) == 15


def test_usage_is_summed_by_what_one_asks_for(seeded: Seeded) -> None:
    """The sums are a table with a column for each group, or JSON; a time and a session choose entries."""
    by_model = values("usage", "--by", "model,session", "--since", "1d", url=seeded.url)
    assert [(each["model"], each["session_id"], each["day"]) for each in by_model] == [("m", "support-42", None)]
    assert by_model[0]["usage"]["input_tokens"] > 0
    shown = output("usage", "--by", "session, day", url=seeded.url).splitlines()
    assert shown[0].split() == ["DAY", "SESSION", "INPUT", "OUTPUT", "CACHED", "REASONING", "TOTAL"]
    assert values("usage", "--until", "2020-01-01", url=seeded.url) == []
    assert values("usage", "--since", "2020-01-01T12:00", "--session", "unknown", url=seeded.url) == []
    assert run("usage", "--by", "week", url=seeded.url).returncode == 2
    assert run("usage", "--since", "soon", url=seeded.url).returncode == 2


def test_the_holder_of_a_lease_is_shown_without_its_token(seeded: Seeded) -> None:
    """The output names the worker of a session, but not the token that would let a user act as it."""
    claim = functools.partial(_claim, session_id="support-42")
    lease = acquired(ask(seeded.url, claim))
    shown = run("sessions", "show", "support-42", url=seeded.url).stdout
    told = run("sessions", "show", "support-42", "--json", url=seeded.url).stdout
    assert "worker:        worker-7, until " in shown
    assert '"owner_id":"worker-7"' in told
    assert lease.token not in shown + told


def test_live_leases_are_listed_without_their_tokens(seeded: Seeded) -> None:
    """The list names what is held, by which worker and until when, as a table and as JSON; --kind chooses."""
    lease = acquired(ask(seeded.url, functools.partial(_claim, session_id="support-42")))
    listed = values("leases", "ls", "--kind", "session", url=seeded.url)
    assert [(each["kind"], each["id"], each["owner"]["owner_id"]) for each in listed] == [
        ("session", "support-42", "worker-7")
    ]
    assert listed[0]["expires_at_ms"] == lease.expires_at_ms
    shown = output("leases", "ls", url=seeded.url)
    assert shown.splitlines()[0].split() == ["KIND", "ID", "OWNER", "PID", "FENCING", "HELD", "EXPIRES"]
    assert "support-42" in shown
    assert lease.token not in shown + repr(listed)


async def _claim(storage: lash.Storage, session_id: str) -> lash.model.Acquired | lash.model.Busy:
    return await storage.leases.claim(session_id, owner("worker-7"), ttl_ms=60_000)


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell_name: str, tmp_path: Path) -> None:
    """The script calls the program for completions; it needs no storage."""
    ended = run("completion", shell_name, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"_LASH_COMPLETE={shell_name}_complete" in ended.stdout


def test_completion_answers_what_can_be_typed_next() -> None:
    """A completion request returns the matching commands and options."""
    asked = {"_LASH_COMPLETE": "bash_complete", "COMP_WORDS": "lash sessions f", "COMP_CWORD": "2"}
    ended = run(variables=asked)
    assert (ended.returncode, ended.stdout) == (0, "plain,fork\n")


def test_workers_are_listed_and_drained(seeded: Seeded) -> None:
    """A worker is listed with what it runs, and either name of the command drains it; an unknown one is reported."""
    asyncio.run(register_worker(seeded.url))
    shown = run("workers", "ls", url=seeded.url).stdout
    for expected in ("worker-1", "active", "sessions and processes index", "1/4", "0/8", "support-42"):
        assert expected in shown
    (listed,) = values("workers", "ls", url=seeded.url)
    assert (listed["worker_id"], listed["holding"]["session_ids"]) == ("worker-1", ["support-42"])
    assert "channel" not in listed["beat"]
    versions = {(each["kind"], each["name"]): each for each in values("versions", "ls", url=seeded.url)}
    assert versions["worker", "lash"]["version"] == listed["beat"]["version"]
    assert (versions["process", "research"]["version"], versions["process", "research"]["count"]) == (None, 1)
    assert run("versions", "ls", "-q", url=seeded.url).stdout.splitlines()[0] == "research@-"
    assert run("worker", "drain", "worker-1", url=seeded.url).stdout == (
        "draining worker-1; it stops when nothing runs\n"
    )
    (drained,) = values("workers", "ls", url=seeded.url)
    assert drained["status"] == "draining"
    unknown = run("workers", "drain", "worker-2", url=seeded.url)
    assert (unknown.returncode, unknown.stderr) == (3, "lash: unknown worker worker-2; see lash workers ls\n")


def test_counts_per_interval(seeded: Seeded) -> None:
    """With --per there is a row for each interval until now; a range needs --per."""
    found = values("counts", "--per", "hour", "--since", "3h", url=seeded.url)
    assert len(found) in (4, 5)
    assert sum(each["dead"] for each in found) == 1
    assert sum(each["processes"] for each in found) == ask(seeded.url, _ended)
    assert len(values("counts", "--per", "minute", url=seeded.url)) in (60, 61)
    assert "DEAD LETTERS" in output("counts", "--per", "day", "--since", "2d", url=seeded.url)
    assert run("counts", "--since", "3h", url=seeded.url).returncode == 2
    assert run("counts", "--per", "minute", "--since", "30d", url=seeded.url).returncode == 2


async def _ended(storage: lash.Storage) -> int:
    """Return how many processes have ended."""
    counts = (await storage.counts()).processes
    return sum(counts.values()) - counts[lash.model.ProcessStatus.RUNNING]


def test_sessions_are_found_by_words(seeded: Seeded) -> None:
    """Each word is the beginning of one in the first message or the labels; a text without words is a usage error."""
    for text, found in (("MON where", ["support-42"]), ("money unknown", [])):
        listed = values("sessions", "ls", "--search", text, url=seeded.url)
        assert [each["meta"]["session_id"] for each in listed] == found
    refused = run("sessions", "ls", "--search", "%", url=seeded.url)
    assert (refused.returncode, "letter or digit" in refused.stderr) == (2, True)
