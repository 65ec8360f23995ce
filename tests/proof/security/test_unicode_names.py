"""Ids are texts of any letters: each stays as it was given, and is never taken for another."""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import lash
from lash.bytestore.file import FileBytes
from lash.model.process.process import AgentScope, Grant
from lash.model.queue import BatchDraft, TurnInput
from lash.stores.storage import Storage
from lash.transfer import export_session, import_session
from tests.factories.effect import effect
from tests.factories.process import NOTE, process
from tests.factories.session import acquired, commit, node, owner
from tests.factories.trigger import trigger

on_files = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
WIDEST = "\N{GRINNING FACE}" * 255
"""The longest id: 255 characters, 1,020 bytes."""
HOSTILE = (
    *("..", "../../etc/passwd", "/etc/passwd", "C:\\windows\\system32", "\\\\host\\share", "CON", "NUL.txt", "aux"),
    *("a/../b", ".", "~root", "-rf", "%2e%2e%2f", "name\n", " name", "name ", "\u202egnp.exe", "a\ufeff", "x" * 4_096),
)
"""Names that a file system would misread."""
TWINS = tuple(
    dict.fromkeys(
        unicodedata.normalize(form, text)
        for text in ("\u00e9", "\ufb01", "\u212b", "\uac00", "\u1e9b\u0323", "\uff21", "\u0130")
        for form in ("NFC", "NFD", "NFKC", "NFKD")
    )
)
"""Texts that look alike, or are equal after normalisation."""


def samples() -> Iterator[str]:
    """Yield characters of every category that text can have, the first, the middle and the last."""
    found: dict[str, list[str]] = defaultdict(list)
    for code in range(1, sys.maxunicode + 1):
        found[unicodedata.category(chr(code))].append(chr(code))
    for category, letters in sorted(found.items()):
        if category != "Cs":
            yield from (letters[0], letters[len(letters) // 2], letters[-1])


@on_files
async def test_letters_of_every_category_and_twins_stay_apart(backend_url: str) -> None:
    """Ids with any character, and ids that only normalisation makes equal, name different things."""
    names = list(dict.fromkeys((*(f"x{letter}y" for letter in samples()), *TWINS, "a", "A", "\u00df", "ss", "SS")))
    assert len(names) > 100
    async with await lash.open(backend_url) as storage:
        for name in names:
            created = await storage.sessions.create(name, name=name)
            assert created.created, name
            await storage.processes.register(process(name))
        for name in names:
            draft = BatchDraft(session_id="a", payloads=(TurnInput.of_text(name),), source_key=name)
            assert (await storage.queue.enqueue(draft)).created, name
        assert {batch.source_key for batch in await storage.queue.list("a")} == set(names)
        for name in names:
            assert (await storage.session(name).meta()).name == name
            record = await storage.processes.get(name)
            assert record is not None
            assert record.process_id == name
        for name in names[::2]:
            assert await storage.sessions.delete(name)
        left = [name for name in names[1::2] if await storage.sessions.open(name) is None]
        assert left == []


@on_files
async def test_lengths_count_characters_not_bytes(backend_url: str) -> None:
    """255 characters of four bytes each are a valid id wherever one is taken; one more is refused."""
    async with await lash.open(backend_url) as storage:
        await use_everywhere(storage, WIDEST)
        assert await storage.maintenance.find_damage() == ()
        with pytest.raises(lash.InvalidInput, match="256 characters; at most 255"):
            await storage.sessions.create(WIDEST + "x")
        with pytest.raises(lash.InvalidInput, match="256 characters; at most 255"):
            await storage.processes.register(process(WIDEST + "x"))


async def use_everywhere(storage: Storage, name: str) -> None:
    """Use one name as the id and key of everything."""
    await storage.sessions.create(name, name=name)
    await storage.session(name).commit(commit(0, node(name), session_id=name, turn_id=name))
    draft = BatchDraft(session_id=name, payloads=(TurnInput.of_text(name),), source_key=name, merge_key=name)
    await storage.queue.enqueue(draft)
    await storage.processes.register(process(name, NOTE))
    await storage.events.append(name, lash.model.EventDraft(event_type="note", payload=name, replay_key=name))
    await storage.grants.grant(Grant(scope=AgentScope(session_id=name, agent_frame_id=name), process_id=name))
    await storage.triggers.register(trigger(name, source_key=name))
    await storage.artifacts.put(name, name.encode())
    scope = lash.model.ProcessScope(process_id=name)
    lease = acquired(await storage.leases.claim(name, owner(name), ttl_ms=60_000))
    turn = lash.model.TurnScope(session_id=name, turn_id="t")
    await storage.effects.record(lease.fence, effect(name, scope=turn), name)
    key = await storage.waits.key(scope, lash.model.CustomIdentity(key=name))
    await storage.waits.open(key)
    assert await storage.waits.get(key.text) is not None
    assert len(await storage.effects.list(turn)) == 1


@on_files
async def test_hostile_names_of_attachments_touch_no_file(
    backend_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels and session ids that look like paths are kept as text, through a file too; files have digests as names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes").mkdir()
    async with (
        await lash.open(backend_url, attachment_bytes=FileBytes(tmp_path / "bytes")) as storage,
        await lash.open("sqlite://") as target,
    ):
        for number, label in enumerate((*HOSTILE, *TWINS)):
            name = label[:255].strip() or str(number)
            session_id = f"{number}{name}"[:255]
            await storage.sessions.create(session_id)
            put = await storage.attachments.put(session_id, f"bytes {number}".encode(), "text/plain", label=label)
            await storage.session(session_id).commit(commit(0, node("a"), session_id=session_id, attachments=(put.id,)))
            stream = io.BytesIO()
            await export_session(storage, session_id, stream)
            stream.seek(0)
            await import_session(target, stream)
            for each in (storage, target):
                (entry,) = (await each.attachments.list(session_id)).entries
                assert entry.ref.label == label
                assert (await each.attachments.get(session_id, put.id)).content == f"bytes {number}".encode()
        with pytest.raises(lash.InvalidInput, match="label contains a NUL"):
            await storage.attachments.put("0..", b"x", "text/plain", label="a\0b")
    written = {path.name for path in (tmp_path / "bytes").rglob("*") if path.is_file()}
    assert all(set(name) <= set("0123456789abcdef.") for name in written), written
    beside = next(os.walk(tmp_path))[2]
    assert {name.partition(".")[0] for name in beside} <= {"lash"}
