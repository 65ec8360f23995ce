"""What an operator does from a page, on both databases."""

from __future__ import annotations

import pytest

import lash
from lash.model.act import ActOutcome
from lash.model.effect import ProcessScope
from lash.model.process.event import EventType
from lash.model.process.process import Success
from lash.model.queue import TurnInput
from lash.model.session.checkpoint import BRANCH_OPTION
from lash.model.value import JSON, JSONObject
from lash.model.wait import CustomIdentity, Question, Resolved
from lash.stores.storage import Storage
from lash.web import Access
from lash.web.access import Visitor
from tests.factories.process import process, registered
from tests.web.site import fill, site


async def test_a_wait_is_answered_by_its_id(storage: Storage) -> None:
    """An answer resolves the wait once; the second one reports the first."""
    await fill(storage, 1)
    (wait,) = await storage.waits.pending()
    key = await storage.waits.key(wait.scope, wait.identity)
    async with site(storage) as visitor:
        answer = await visitor.post("resolve", {"wait": wait.key_id, "value": '{"approved": true}'})
        assert answer.headers["location"] == "inbox?done=answered"
        again = await visitor.post("reject", {"wait": wait.key_id})
        assert again.headers["location"] == "inbox?done=it+was+answered+before"
    stored = await storage.waits.get(key)
    assert stored is not None
    assert stored.resolution == Resolved(value={"approved": True})


@pytest.mark.parametrize("backend_name", ["sqlite"])
@pytest.mark.parametrize(
    ("schema", "fields", "answer"),
    [
        (None, {"value": "[1]"}, [1]),
        ({"type": "boolean"}, {"answer": "false"}, False),
        ({"enum": ["now", "later"]}, {"answer": "later"}, "later"),
        (
            {
                "type": "object",
                "properties": {
                    "approved": {"type": "boolean"},
                    "cents": {"type": "integer"},
                    "note": {"type": "string"},
                },
                "required": ["approved"],
            },
            {"answer.approved": "true", "answer.cents": "5", "answer.note": ""},
            {"approved": True, "cents": 5},
        ),
        ({"type": "object", "properties": {"deep": {"type": "object"}}}, {"value": '{"deep": {}}'}, {"deep": {}}),
    ],
)
async def test_a_form_is_made_from_the_schema(
    storage: Storage, schema: JSONObject | None, fields: dict[str, str], answer: JSON
) -> None:
    """The page has the fields of the schema, and their texts become an answer that matches it."""
    await registered(storage, "p")
    key = await storage.waits.key(ProcessScope(process_id="p"), CustomIdentity(key="k"))
    await storage.waits.open(key, ask=Question(text="Pay the refund?", schema=schema))
    (wait,) = await storage.waits.pending()
    async with site(storage) as visitor:
        page = await visitor.get("inbox")
        assert "Pay the refund?" in page
        assert [name for name in fields if f'name="{name}"' not in page] == []
        assert (await visitor.post("resolve", {"wait": wait.key_id, **fields})).status_code == 303
    stored = await storage.waits.get(key)
    assert stored is not None
    assert stored.resolution == Resolved(value=answer)


async def test_a_wrong_answer_changes_nothing(storage: Storage) -> None:
    """Text that is not JSON is refused with the remedy."""
    await fill(storage, 1)
    (wait,) = await storage.waits.pending()
    async with site(storage) as visitor:
        refused = await visitor.post("resolve", {"wait": wait.key_id, "value": "yes please"})
        assert refused.status_code == 400
        assert "put a text in quotes" in refused.text
    assert await storage.waits.pending() == (wait,)


async def test_dead_letters_are_queued_again(storage: Storage) -> None:
    """One of them, or all that the check counted, and none that died later."""
    await fill(storage, 3)
    first, second, third = [letter.batch for letter in await storage.queue.dead()]
    async with site(storage) as visitor:
        fields = {"session": first.session_id, "batch": first.batch_id}
        assert (await visitor.post("requeue", fields)).status_code == 303
        assert len(await storage.queue.dead()) == 2
        assert (await visitor.post("requeue", fields)).status_code == 404
        last = _last(await visitor.get("queue?show=dead&check=requeue&prefix=dead1"))
        done = await visitor.post("requeue-all", {"prefix": "", "last": last})
        assert "queued+1+message+again" in done.headers["location"]
        assert [letter.batch for letter in await storage.queue.dead()] == [third]
        assert {batch.batch_id for batch in await storage.queue.list(second.session_id)} == {second.batch_id}
        last = _last(await visitor.get("queue?show=dead&check=discard"))
        done = await visitor.post("discard-all", {"last": last, "prefix": "dead"})
        assert done.headers["location"] == "queue?show=dead&prefix=dead&done=discarded+1+message"
        assert (await visitor.post("discard-all", {"prefix": ""})).status_code == 400
    assert await storage.queue.dead() == ()


async def test_all_matching_messages_are_cancelled(storage: Storage) -> None:
    """The check counts what the filter matches; the act cancels that, and none that came later."""
    await fill(storage, 2)
    async with site(storage) as visitor:
        last = _last(await visitor.get("queue?check=cancel&prefix=s"))
        await lash.SessionHandle(storage, "s0").send("later")
        done = await visitor.post("cancel-all", {"prefix": "s", "state": "", "last": last})
        assert done.headers["location"] == "queue?prefix=s&done=cancelled+2+messages"
    left = [item.batch.payloads for item in await storage.queue.list_all()]
    assert left == [(TurnInput.of_text("later"),)]
    async with site(storage, Access.READ) as visitor:
        page = await visitor.get("queue?check=cancel")
        assert 'href="queue?check=' not in page
        assert "Dry run" not in page


def _last(page: str) -> str:
    """Return the last message that a check counted, as its form has it."""
    return page.partition('name="last" value="')[2].partition('"')[0]


async def test_a_message_is_sent_once(storage: Storage) -> None:
    """A form that is sent twice, as by a reload, is one message."""
    await fill(storage, 1)
    async with site(storage) as visitor:
        for _ in range(2):
            await visitor.post("send", {"session": "s0", "text": "from the console", "key": "form-1"})
    texts = [batch.payloads for batch in await storage.queue.list("s0")]
    assert texts.count((TurnInput.of_text("from the console"),)) == 1


async def test_a_session_is_forked_at_a_message(storage: Storage) -> None:
    """The fork ends at the message, and the page goes to it."""
    await fill(storage, 1)
    async with site(storage) as visitor:
        done = await visitor.post("fork", {"session": "s0", "node": "b", "new_id": "copy"})
        assert done.headers["location"] == "session?id=copy&done=forked+from+s0"
        assert "fork of" in await visitor.get("session?id=copy")
    path = await storage.session("copy").raw_path()
    assert [node.node_id for node in path] == ["a", "b"]


async def test_processes_are_signalled_and_cancelled(storage: Storage) -> None:
    """A signal that is sent twice is in the log once; a request to cancel names the visitor."""
    await storage.processes.register(process("p", EventType(name="signal.go")))
    async with site(storage) as visitor:
        for _ in range(2):
            fields = {"process": "p", "name": "go", "payload": "[1]", "key": "form-2"}
            assert (await visitor.post("signal", fields)).status_code == 303
        await visitor.post("cancel-process", {"process": "p"})
    events = await storage.events.after("p")
    assert [(event.event_type, event.payload) for event in events if event.event_type == "signal.go"] == [
        ("signal.go", [1])
    ]
    record = await storage.processes.get("p")
    assert record is not None
    assert record.projection.cancel_reason == "cancelled by console"


async def test_attachments_are_downloads(storage: Storage) -> None:
    """The bytes come as a file to save, whatever type the user gave, in a sandbox."""
    await fill(storage, 1, "<script>alert(1)</script>")
    (entry,) = (await storage.attachments.list("s0")).entries
    async with site(storage) as visitor:
        response = await visitor.client.get("/attachment", params={"session": "s0", "id": entry.ref.id})
    assert response.content == b"<script>alert(1)</script>"
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"].startswith("attachment;")
    assert "sandbox" in response.headers["content-security-policy"]


async def test_acts_are_recorded_with_their_visitor(storage: Storage) -> None:
    """An act has the name of the visitor; a refused one has the class of its error."""
    await fill(storage, 1)
    (wait,) = await storage.waits.pending()
    async with site(storage, Visitor(Access.ALL, "ada")) as visitor:
        await visitor.post("resolve", {"wait": wait.key_id, "value": '{"approved": true}'})
        await visitor.post("requeue", {"session": "unknown", "batch": "b"})
    refused, done = await storage.acts.list()
    assert (done.by, done.verb, done.target, done.outcome) == ("ada", "resolve", wait.key_id, ActOutcome.DONE)
    assert (refused.verb, refused.session_id, refused.error) == ("requeue", "unknown", "SessionNotFound")


async def test_an_ended_process_is_run_again(storage: Storage) -> None:
    """The page of an ended process offers it, and the page of the rerun names the first."""
    await registered(storage, "p", outcome=Success(value=1))
    async with site(storage) as visitor:
        assert 'action="rerun"' in await visitor.get("process?id=p")
        answer = await visitor.post("rerun", {"process": "p", "key": "q"})
        assert (answer.status_code, answer.headers["location"].partition("&")[0]) == (303, "process?id=q")
        assert 'href="process?id=p"' in await visitor.get("process?id=q")
    (act,) = await storage.acts.list(process_id="p")
    assert (act.verb, act.target) == ("rerun", "q")


async def test_an_edited_message_is_sent_on_a_branch(storage: Storage) -> None:
    """The form sends a message that stands instead of the earlier one, once, and the act is recorded."""
    await fill(storage, 1)
    async with site(storage, Visitor(Access.ALL, "ada")) as visitor:
        page = await visitor.get("session?id=s0")
        assert "Send on a new branch" in page
        assert "<textarea" in page.partition('action="edit"')[2].partition("</form>")[0]
        fields = {"session": "s0", "node": "c", "text": "corrected", "key": "form-3"}
        for _ in range(2):
            done = await visitor.post("edit", fields)
            assert done.headers["location"] == "session?id=s0&done=sent+on+a+branch+of+its+own"
        assert (await visitor.post("edit", {**fields, "node": "unknown"})).status_code == 404
    (edited,) = [batch for batch in await storage.queue.list("s0") if batch.source_key == "form-3"]
    (payload,) = edited.payloads
    assert isinstance(payload, TurnInput)
    assert payload.items == TurnInput.of_text("corrected").items
    # The message c follows a, and so does what is sent instead of it.
    assert payload.protocol_turn_options[BRANCH_OPTION] == {"shown": "a", "parent": "a"}
    refused, *done_twice = await storage.acts.list(session_id="s0")
    assert (refused.verb, refused.error) == ("edit", "NodeNotFound")
    assert [(act.by, act.verb, act.target, act.outcome) for act in done_twice] == [("ada", "edit", "c", "done")] * 2


async def test_a_branch_becomes_the_conversation(storage: Storage) -> None:
    """The page of a branch offers it, and the page of the active path does not."""
    await fill(storage, 1)
    offer = "Continue from here"
    async with site(storage) as visitor:
        assert offer in await visitor.get("session?id=s0&leaf=b")
        assert offer not in await visitor.get("session?id=s0&leaf=a")
        assert "An earlier part of the conversation" in await visitor.get("session?id=s0&leaf=a")
        assert (await visitor.post("switch", {"session": "s0", "node": "b"})).status_code == 303
        assert offer not in await visitor.get("session?id=s0&leaf=b")
    assert [node.node_id for node in await storage.session("s0").raw_path()] == ["a", "b"]


async def test_a_form_that_is_sent_twice_makes_one_fork(storage: Storage) -> None:
    """Without an id of its own, the fork gets its id from the key of the form."""
    await fill(storage, 1)
    async with site(storage) as visitor:
        fields = {"session": "s0", "node": "b", "key": "console-0123456789ab"}
        places = {(await visitor.post("fork", fields)).headers["location"] for _ in range(2)}
    assert places == {"session?id=s0-456789ab&done=forked+from+s0"}


@pytest.mark.parametrize("backend_name", ["sqlite"])
@pytest.mark.parametrize(
    ("back", "place"),
    [
        ("queue?prefix=s&state=ready", "queue?prefix=s&state=ready&done=asked+it+to+stop"),
        ("./?span=day", "./?span=day&done=asked+it+to+stop"),
        ("process?id=p0", "process?id=p0&done=asked+it+to+stop"),
        ("https://evil.test/", "process?id=p0&done=asked+it+to+stop"),
        ("//evil.test/inbox", "process?id=p0&done=asked+it+to+stop"),
        ("static/console.js", "process?id=p0&done=asked+it+to+stop"),
    ],
)
async def test_an_act_returns_to_its_page(storage: Storage, back: str, place: str) -> None:
    """The visitor comes back to the page with its filters; an address that is not of a page is ignored."""
    await registered(storage, "p0")
    async with site(storage) as visitor:
        done = await visitor.post("cancel-process", {"process": "p0", "back": back})
    assert done.headers["location"] == place


async def test_the_queue_keeps_its_filter(storage: Storage) -> None:
    """A button in a filtered list returns to the list with the same filter."""
    await fill(storage, 2)
    async with site(storage) as visitor:
        page = await visitor.get("queue?show=dead&prefix=dead1")
        assert page.count('name="back" value="queue?show=dead&amp;prefix=dead1"') == 3
