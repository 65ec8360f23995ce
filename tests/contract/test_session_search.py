"""The contract of text search: sessions by the words of their first messages and labels."""

from __future__ import annotations

import msgspec
import pytest

from lash.errors import InvalidInput
from lash.model.session.session import SessionFilter, SessionOrder
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.sealed import key
from tests.factories.session import commit, node

TEXTS = {
    "money": "Where is my money?",
    "street": "Die Straße nach KÖLN, don't stop: 100% sure_thing",
    "word": '"quoted" select * from lash_sessions; -- money',
    "far": "x " * 600 + "faraway",
    "labelled": "?",
}
LABELS = {"money": {"team": "Billing"}, "labelled": {"tier": "gold-plus"}}


async def _filled(storage: Storage) -> None:
    for session_id, text in TEXTS.items():
        await storage.sessions.create(session_id, labels=LABELS.get(session_id, {}))
        await storage.session(session_id).commit(commit(0, node("a", None, text), session_id=session_id))
    await storage.sessions.create("empty", labels={"tier": "gold"})


async def _found(storage: Storage, text: str, **wanted: object) -> set[str]:
    page = await storage.sessions.list(SessionFilter(text=text, **wanted))  # type: ignore[arg-type]
    return {each.meta.session_id for each in page.sessions}


async def test_all_words_must_begin_a_word(harness: Harness) -> None:
    """Case, order and punctuation do not matter; the words of a message and of labels count together."""
    storage = await harness.open()
    await _filled(storage)
    for text, expected in (
        ("money", {"money", "word"}),
        ("MON whe", {"money"}),
        ("oney", set()),
        ("money billing", {"money"}),
        ("team", {"money"}),
        ("gold", {"labelled"}),
        ("gold-plus", {"labelled"}),
        ("straße", {"street"}),
        ("STRASSE", set()),
        ("100%", {"street"}),
        ("%", None),
        ("sure_thing", {"street"}),
        ("_", None),
        ("don't", {"street"}),
        ("'", None),
        ('"quoted"', {"word"}),
        ("lash_sessions; --", {"word"}),
        ("quoted OR money AND (", set()),
        ("faraway", set()),
        ("", None),
        ("   ", None),
    ):
        if expected is None:
            with pytest.raises(InvalidInput, match="letter or digit"):
                await _found(storage, text)
        else:
            assert await _found(storage, text) == expected, text
    with pytest.raises(InvalidInput, match="at most 10"):
        await _found(storage, " ".join(map(str, range(11))))


async def test_a_search_is_combined_with_other_filters_and_read_in_pages(harness: Harness) -> None:
    """It has the orders and the cursors of every list, and is one statement."""
    names: list[str] = []
    storage = await harness.open(on_statement=names.append)
    for number in range(5):
        labels = {"even": "yes"} if number % 2 == 0 else {}
        await storage.sessions.create(f"s{number}", labels=labels, owner="ada")
        await storage.session(f"s{number}").commit(commit(0, node("a", None, "refund"), session_id=f"s{number}"))
        await harness.clock.advance(10)
    assert await _found(storage, "refund", labels={"even": "yes"}, owner="ada") == {"s0", "s2", "s4"}
    assert await _found(storage, "refund", owner="bob") == set()
    assert await _found(storage, "refund", prefix="s3") == {"s3"}
    for order in SessionOrder:
        for oldest_first in (False, True):
            found: list[str] = []
            cursor: str | None = None
            while True:
                names.clear()
                page = await storage.sessions.list(
                    SessionFilter(text="refund"), order=order, oldest_first=oldest_first, limit=2, cursor=cursor
                )
                assert names.count("session_page_search") == 1
                found += [each.meta.session_id for each in page.sessions]
                cursor = page.next_cursor
                if cursor is None:
                    break
            expected = [f"s{number}" for number in range(5)]
            assert found == (expected if oldest_first else expected[::-1])


async def test_the_index_follows_the_sessions(harness: Harness) -> None:
    """Changed labels, an erased message, a fork and a deletion are seen at once."""
    storage = await harness.open()
    await _filled(storage)
    await storage.sessions.fork("money", "fork")
    assert await _found(storage, "where") == {"money", "fork"}
    assert await _found(storage, "where", source_session_id="money") == {"fork"}
    assert await _found(storage, "where", source_session_id="street") == set()
    await storage.session("street").erase(["a"])
    assert await _found(storage, "straße") == set()
    meta = await storage.session("labelled").meta()
    await storage.session("labelled").save_meta(msgspec.structs.replace(meta, labels={"tier": "silver"}))
    assert (await _found(storage, "gold"), await _found(storage, "silver")) == (set(), {"labelled"})
    await storage.sessions.delete("money")
    assert await _found(storage, "where") == {"fork"}
    await storage.sessions.create("money")
    assert await _found(storage, "where") == {"fork"}


async def test_a_sealed_storage_finds_labels_only(harness: Harness) -> None:
    """Words of sealed messages are not in the index."""
    storage = await harness.open(sealer=key("k"))
    await _filled(storage)
    assert await _found(storage, "money") == set()
    assert await _found(storage, "billing") == {"money"}
