"""Every page on both databases: complete without JavaScript, a fixed number of reads, hostile content harmless."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import cast

import pytest

import lash
from lash.model.effect import ProcessScope
from lash.model.wait import CustomIdentity
from lash.stores.storage import Storage
from lash.web.pages import PAGES
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
