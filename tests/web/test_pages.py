"""Every page on both databases: complete without JavaScript, a fixed number of reads, hostile content harmless."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from typing import cast

import pytest

import lash
from lash.model.effect import ProcessScope, TurnScope
from lash.model.process.event import EventDraft, EventType
from lash.model.queue import ClaimedTurn, turn_id_of
from lash.model.wait import CustomIdentity, Question
from lash.stores.storage import Storage
from lash.web import Access
from lash.web.access import Visitor
from lash.web.pages import PAGES
from tests.factories.effect import effect
from tests.factories.process import process, process_lease, registered
from tests.factories.session import owner
from tests.web.site import Counted, fill, site

ADDRESSES = (
    "",
    "sessions",
    "session?id=s0",
    "session?id=s0&leaf=b",
    "processes",
    "process?id=p0",
    "inbox",
    "queue",
    "queue?show=dead",
    "queue?show=dead&check=discard",
    "queue?check=cancel",
    "workers",
    "triggers",
    "tokens",
    "tokens?by=session&since=all",
    "storage",
    "storage?check=doctor",
    "acts",
    "?span=day",
)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> javascript:alert(3) \x1b[2J\u202e\x00\"'><b>"
VOID = {"meta", "link", "input", "img", "br", "hr"}


class Tags(HTMLParser):
    """The tags of a page, and whether they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts: list[str | None] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag == "script":
            self.scripts.append(dict(attrs).get("src"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_page_is_here() -> None:
    """The addresses of these tests name every page."""
    assert {address.partition("?")[0] for address in ADDRESSES} == set(PAGES)


async def test_pages_show_what_is_there(storage: Storage) -> None:
    """Each page has its content; an empty storage has pages that name the next step."""
    async with site(storage) as visitor:
        for address in ("", "sessions", "processes", "inbox", "queue", "workers", "triggers", "tokens", "storage"):
            assert "empty" in await visitor.get(address)
        await fill(storage)
        shown = {
            "": ["s0", "waiting for you"],
            "sessions": ["s1", "dead0", "hello"],
            "sessions?source=s0": ["fork-s0"],
            "sessions?text=hel": ["s0", "s1"],
            "sessions?text=nothing": ["No session matches"],
            "session?id=s0": ["hello", "Fork here", "team=hello", "queued", "Forks", 'aria-label="fork fork-s0"'],
            "processes": ["p0", "q1"],
            "processes?parent=p0": ["q0"],
            "process?id=p0": ["Timeline", "Cancel the process", "Processes that it started", "child: hello"],
            "process?id=q0": ['href="process?id=p0"'],
            "inbox": ["hello", "Answer", "Reject"],
            "queue": ["s0", "hello"],
            "queue?show=dead": ["dead0", "Queue all matching again"],
            "queue?show=dead&check=requeue": ["Dry run", "2 dead letters match", "Queue 2 dead letters again"],
            "queue?check=cancel&prefix=s1": ["1 queued message matches", "Cancel 1 queued message"],
            "triggers": ["t0", "enabled"],
            "tokens": ["hello", "20"],
        }
        for address, texts in shown.items():
            page = await visitor.get(address)
            assert [text for text in texts if text not in page] == [], address


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_hostile_content_stays_text(storage: Storage) -> None:
    """No stored text becomes a tag, an attribute, a link or a control character, on any page."""
    await fill(storage, 1, HOSTILE.replace("\x00", ""))
    async with site(storage) as visitor:
        for address in ADDRESSES:
            page = await visitor.get(address)
            tags = Tags(page)
            assert tags.open == [], address
            assert len(tags.ids) == len(set(tags.ids)), address
            assert tags.scripts == ["static/idiomorph.min.js", "static/console.js"]
            assert not {name for name in tags.attributes if name.startswith("on") or name == "style"}
            assert not tags.names & {"img", "iframe", "object", "embed"}
            assert 'href="javascript' not in page
            assert not {"\x1b", "\u202e"} & set(page), address


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_reads_do_not_grow(storage: Storage) -> None:
    """A page makes as many calls for twenty of everything as for two."""
    await fill(storage, 2)
    few = await _calls(storage)
    async with site(storage) as visitor:
        for number in range(18):
            fields = {"session": "s0", "node": "b", "new_id": f"fork{number}"}
            assert (await visitor.post("fork", fields)).status_code == 303
    for number in range(18):
        await lash.SessionHandle(storage, f"fork{number}").send("more")
    assert await _calls(storage) == few
    assert max(few.values()) <= 12


async def _calls(storage: Storage) -> dict[str, int]:
    found: dict[str, int] = {}
    for address in ADDRESSES:
        calls: list[str] = []
        async with site(cast("Storage", Counted(storage, calls))) as visitor:
            await visitor.get(address)
        found[address] = len(calls)
    return found


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_secrets_are_redacted(storage: Storage) -> None:
    """What the application redacts is on no page, and keys of waits never are."""
    await fill(storage, 1, "my password is hunter2")
    key = await storage.waits.key(ProcessScope(process_id="p0"), CustomIdentity(key="my password is hunter2"))

    def redact(text: str) -> str:
        return text.replace("hunter2", "•••")

    async with site(storage, redact=redact) as visitor:
        for address in ADDRESSES:
            page = await visitor.get(address)
            assert key.text not in page
            if address in ("session?id=s0", "queue", "queue?show=dead", "inbox", "sessions"):
                assert "•••" in page, address


async def test_unknown_things_are_not_found(storage: Storage) -> None:
    """An address of something that does not exist is a clear error, and so is one without an id."""
    async with site(storage) as visitor:
        assert "does not exist" in await visitor.get("session?id=none", 404)
        assert "unknown process" in await visitor.get("process?id=none", 404)
        assert "expected the id" in await visitor.get("session", 400)
        await visitor.get("attachment?id=none", 404)
        await visitor.get("sessions?cursor=damaged", 400)


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_an_outage_and_garbage_are_clear_errors(backend_url: str) -> None:
    """A storage that is closed is 503, a damaged form is 400; neither is an internal error."""
    storage = await lash.open(backend_url)
    async with site(storage) as visitor:
        wrong = await visitor.post("set-schedule", {"schedule": "k", "revision": "latest"})
        assert (wrong.status_code, "expected a number" in wrong.text) == (400, True)
        assert (await visitor.post("signal", {"process": "p", "name": "go", "payload": "{"})).status_code == 400
        await storage.close()
        assert "closed" in await visitor.get("sessions", 503)


async def test_the_overview_counts_what_ended(storage: Storage) -> None:
    """Turns and failures of the last hour are in the drawing, by minute or by quarter of an hour."""
    await fill(storage, 2)
    async with site(storage) as visitor:
        page = await visitor.get("")
        assert 'aria-label="0 turns and 2 failures, by minute"' in page
        assert page.count('class="failures"') in (1, 2)
        assert page.count('class="back"') == 60
        assert 'aria-label="0 turns and 2 failures, by quarter of an hour"' in await visitor.get("?span=day")


async def test_acts_are_on_the_pages(storage: Storage) -> None:
    """What an operator did is in the list, and on the page of its session or process; filters select."""
    await fill(storage, 1)
    async with site(storage, Visitor(Access.ALL, "ada")) as visitor:
        await visitor.post("cancel-process", {"process": "p0"})
    async with site(storage, Visitor(Access.ALL, "bob")) as visitor:
        await visitor.post("fork", {"session": "s0", "node": "b", "new_id": "copy"})
        await visitor.post("fork", {"session": "s0", "node": "unknown", "new_id": "other"})
        for address in ("acts", "session?id=s0", "acts?session=s0", "acts?by=bob"):
            page = await visitor.get(address)
            assert "fork" in page
            assert "refused: NodeNotFound" in page, address
        for address in ("acts", "process?id=p0", "acts?process=p0", "acts?by=ada"):
            assert 'href="acts?by=ada"' in await visitor.get(address)
        assert "ada" not in (await visitor.get("acts?by=bob")).partition('id="found"')[2]
        assert "No acts" in await visitor.get("acts?by=nobody")
        await visitor.get("acts?session=s0&process=p0", 400)


async def test_a_process_shows_its_waits_and_all_of_its_log(storage: Storage) -> None:
    """A wait can be answered on the page of its process; events and steps that do not fit have a link."""
    await storage.processes.register(process("p", EventType(name="note")))
    for _ in range(250):
        await storage.events.append("p", EventDraft(event_type="note"))
    key = await storage.waits.key(ProcessScope(process_id="p"), CustomIdentity(key="k"))
    await storage.waits.open(key, ask=Question(text="Pay the refund?"))
    async with site(storage) as visitor:
        page = await visitor.get("process?id=p")
        assert "Pay the refund?" in page
        assert 'name="back" value="process?id=p"' in page
        seen = _events(page)
        while "Earlier events" in page:
            before = page.partition("&amp;before=")[2].partition('"')[0]
            page = await visitor.get(f"process?id=p&before={before}")
            seen += _events(page)
    assert sorted(seen) == list(range(1, 251))


def _events(page: str) -> list[int]:
    return [int(part.partition("<")[0]) for part in page.split("<td>event ")[1:]]


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_all_steps_of_a_long_process_can_be_reached(storage: Storage) -> None:
    """The page has the last steps. All of them, in the order of their keys, are on pages of their own, each once."""
    await registered(storage, "p")
    lease = process_lease(await storage.process_leases.claim("p", owner("w"), ttl_ms=60_000))
    for number in range(350):
        if number == 50:
            # Steps of one millisecond have no order in time.
            await asyncio.sleep(0.003)
        await storage.effects.record(lease.fence, effect(f"s{number:04}", scope=ProcessScope(process_id="p")), number)
    seen: list[str] = []
    async with site(storage) as visitor:
        page = await visitor.get("process?id=p")
        assert sorted(_steps(page)) == [f"s{number:04}" for number in range(50, 350)]
        page = await visitor.get("process?id=p&all=steps")
        seen += _steps(page)
        while "Next steps" in page:
            after = page.partition("&amp;steps=")[2].partition('"')[0]
            page = await visitor.get(f"process?id=p&all=steps&steps={after}")
            seen += _steps(page)
    assert sorted(seen) == [f"s{number:04}" for number in range(350)]


def _steps(page: str) -> list[str]:
    log = page.partition('id="log"')[2]
    return [part.partition("<")[0] for part in log.split("<td>") if part.startswith("s0")]


async def test_a_session_shows_its_open_turn(storage: Storage) -> None:
    """The message that a turn answers, its recorded steps, its open wait, and its lease are there before the commit."""
    await storage.sessions.create("s")
    await lash.SessionHandle(storage, "s").send("where is my order?")
    claimed = await storage.queue.claim_turn("s", owner("worker-1"), ttl_ms=60_000)
    assert isinstance(claimed, ClaimedTurn)
    scope = TurnScope(session_id="s", turn_id=turn_id_of(claimed.claim.batches[0].batch_id))
    await storage.effects.record(claimed.lease.fence, effect("find the order", scope=scope), 1)
    key = await storage.waits.key(scope, CustomIdentity(key="k"))
    await storage.waits.open(key, ask=Question(text="Pay the refund?"))
    async with site(storage) as visitor:
        page = await visitor.get("session?id=s")
        chat, _, rest = page.partition('id="running"')
        assert "where is my order?" in chat
        assert "in the open turn" in chat
        assert "Pay the refund?" in chat
        assert 'name="back" value="session?id=s"' in chat
        wanted = ("find the order", "this attempt", f"fencing number {claimed.lease.fencing}")
        assert [text for text in wanted if text not in rest] == []
        await storage.leases.release(claimed.lease.fence)
        assert "this attempt" not in await visitor.get("session?id=s")


async def test_the_doctor_checks_the_storage(storage: Storage) -> None:
    """The storage page shows the checks of the command that concern a storage."""
    await fill(storage, 1)
    async with site(storage) as visitor:
        page = await visitor.get("storage?check=doctor")
    assert [name for name in ("schema", "clock", "dead letters", "durability") if f"<td>{name}</td>" not in page] == []
    assert "1, such as hello" in page


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_an_error_is_a_page(storage: Storage) -> None:
    """An error has the navigation and its text, as text."""
    async with site(storage) as visitor:
        page = await visitor.get("session?id=<script>", 404)
        assert "Not found" in page
        assert 'href="sessions"' in page
        assert Tags(page).scripts == ["static/idiomorph.min.js", "static/console.js"]
        assert "data-stream" not in page
        refused = await visitor.post("resolve", {"wait": "x"})
        assert (refused.status_code, "<h1>Not understood</h1>" in refused.text) == (400, True)


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_colours_are_chosen_without_javascript(storage: Storage) -> None:
    """The form returns to its page with the colours; an unknown theme and a foreign page are ignored."""
    async with site(storage) as visitor:
        assert 'data-theme="auto"' in await visitor.get("queue?show=dead")
        chosen = await visitor.client.get("/theme", params={"theme": "dark", "back": "queue?show=dead"})
        assert (chosen.status_code, chosen.headers["location"]) == (303, "queue?show=dead")
        assert 'data-theme="dark"' in await visitor.get("sessions")
        other = await visitor.client.get("/theme", params={"theme": '"><b>', "back": "https://evil.test"})
        assert (other.headers["location"], "set-cookie" in other.headers) == ("./", False)
