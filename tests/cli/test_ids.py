"""Ids as arguments: a unique beginning is enough, and an error names the candidates."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import lash
from tests.cli.kit import output, run
from tests.cli.seed import Seeded, register_worker
from tests.factories.process import process
from tests.factories.trigger import by_session, trigger


async def _add(url: str) -> None:
    """Add sessions that begin alike, and triggers and schedules of sessions."""
    async with await lash.open(url) as storage:
        for name in ("room", "room-1", "room-2", *(f"team-{number}" for number in range(8))):
            await storage.sessions.create(name)
        await storage.processes.register(process("room-job"))
        for name, key in (("room-1", "mine"), ("room-1", "ours"), ("room-2", "ours")):
            await storage.triggers.register(trigger(key, owner=by_session(name)))
        owner = by_session("room-1")
        draft = lash.model.ScheduleDraft(key="daily", cron="0 7 * * *", owner=owner)
        source_key = (await storage.schedules.register(draft)).schedule.source_key
        await storage.triggers.register(trigger("daily", owner=owner, source_type="cron", source_key=source_key))


def test_a_unique_beginning_is_an_id(seeded: Seeded, tmp_path: Path) -> None:
    """Every command that takes an id of something that exists takes its beginning."""
    asyncio.run(register_worker(seeded.url))
    url = seeded.url
    for beginning, whole in (
        ("sessions show sup -q", "support-42\n"),
        ("sessions tree sup -q", "ask\ncurt\nkind\nthanks\n"),
        ("sessions fork sup other", "forked support-42 as other\n"),
        (f"sessions export sup {tmp_path / 'file'}", f"exported support-42 to {tmp_path / 'file'}: "),
        ("sessions rm sup --dry-run", "would delete support-42: "),
        ("db vacuum sup --dry-run", "would delete 0 removed nodes of 1 session\n"),
        ("effects ls res -q", "search\n"),
        ("records ls --session sup -q", "drafts\n"),
        ("records get drafts 1 --session sup", '"Dear Ann"\n'),
        ("logs repo --tail 0", ""),
        ("signal res approve", "signal approve is event 3 of research-7\n"),
        ("cancel res", "asked process research-7 to stop\n"),
        (f"queue requeue sup {seeded.batch[:-1]}", f"requeued {seeded.batch}\n"),
        (f'waits resolve {seeded.wait[:10]} {{"approved":true}}', "resolved\n"),
        ("triggers disable on", "on-paid is disabled\n"),
        ("schedules disable dig", "digest is disabled\n"),
        ("schedules rm d --dry-run", "would remove schedule digest\n"),
        ("workers drain wor", "draining worker-1; "),
    ):
        assert output(*beginning.split(), url=url).startswith(whole), beginning
    for command in ("queue ls sup", "usage --by session --session sup", "waits ls --process res"):
        assert len(output(*command.split(), url=url).splitlines()) > 1, command


def test_errors_of_ids(seeded: Seeded) -> None:
    """The whole id comes first; several candidates are named; an unknown id is compared with the others."""
    url = seeded.url
    asyncio.run(_add(url))
    assert output("sessions", "show", "room", "-q", url=url) == "room\n"
    for arguments, code, message in (
        ("sessions show room-", 2, "ambiguous session 'room-': room-1, room-2; type more of the id"),
        (
            "sessions rm team --yes",
            2,
            "ambiguous session 'team': team-0, team-1, team-2, team-3, team-4 and more; type more of the id",
        ),
        ("sessions show suport-42", 3, "session 'suport-42' does not exist; did you mean 'support-42'?"),
        ("logs rom-job", 3, "unknown process 'rom-job'; did you mean 'room-job'?"),
        ("logs other", 3, "unknown process 'other'; see lash ps -a"),
        ("triggers disable mi --session room-1", 0, ""),
        ("triggers disable mine", 0, ""),
        ("schedules disable daily", 0, ""),
        (
            "triggers enable ours",
            2,
            "ambiguous trigger 'ours': of session room-2, session room-1; name the session with --session",
        ),
        ("triggers enable nothing", 3, "host has no trigger 'nothing'; see lash triggers ls"),
        ("waits resolve 0", 3, "unknown or revoked wait; see lash waits ls"),
        ("ps --session gone", 0, "no processes; -a shows ended ones"),
    ):
        ended = run(*arguments.split(), url=url)
        said = ended.stderr.rstrip("\n").removeprefix("lash: ")
        assert (ended.returncode, said) == (code, message), arguments
    assert "room-2" in output("sessions", "ls", url=url)


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
def test_a_new_id_is_taken_as_it_is(seeded: Seeded, backend_name: str) -> None:
    """A command that creates something does not match the beginning of another id."""
    ended = run("ask", "support", "hello", "--timeout", "0", url=seeded.url)
    assert ended.returncode == 5
    assert output("sessions", "fork", "support-42", "supp", "-q", url=seeded.url) == "supp\n"
    assert output("sessions", "ls", "--prefix", "sup", "-q", url=seeded.url).splitlines() == [
        "supp",
        "support",
        "support-42",
    ]
