"""Files of a ChatKit server: announced, uploaded, read and deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from chatkit.server import ChatKitServer
from chatkit.store import NotFoundError
from chatkit.types import AttachmentCreateParams, ThreadMetadata, ThreadStreamEvent, UserMessageItem

import lash
from lash.adapters.chatkit import AttachmentExists, LashAttachmentStore, LashStore

ANN, BOB = SimpleNamespace(user_id="ann"), {"user_id": "bob"}
PNG = b"\x89PNG\x00\xff"


def _files(url: str) -> LashAttachmentStore:
    return LashAttachmentStore(url, url_of=lambda attachment_id, _: f"https://app.example/files/{attachment_id}")


class _OneId(LashAttachmentStore):
    def generate_attachment_id(self, mime_type: str, context: Any) -> str:  # noqa: ANN401 (ChatKit's signature)
        return "one"


class _Silent(ChatKitServer[Any]):
    async def respond(
        self,
        thread: ThreadMetadata,
        input_user_message: UserMessageItem | None,
        context: Any,  # noqa: ANN401 (ChatKit's signature)
    ) -> AsyncIterator[ThreadStreamEvent]:
        for event in ():
            yield event


def _announced(size: int = len(PNG), mime_type: str = "image/png") -> AttachmentCreateParams:
    return AttachmentCreateParams(name="cat.png", size=size, mime_type=mime_type)


async def test_a_server_with_two_phase_uploads(url: str) -> None:
    """The server announces a file, the endpoint stores its bytes, a message names it, and the server deletes it."""
    store, files = LashStore(url), _files(url)
    server = _Silent(store=store, attachment_store=files)

    async def ask(kind: str, **params: Any) -> Any:  # noqa: ANN401 (any answer)
        answer = await server.process(json.dumps({"type": kind, "params": params}), ANN)
        return [event async for event in answer] if hasattr(answer, "__aiter__") else json.loads(answer.json)

    made = await ask("attachments.create", name="cat.png", size=len(PNG), mime_type="image/png")
    link = f"https://app.example/files/{made['id']}"
    assert (made["type"], made["preview_url"], made["upload_descriptor"]["url"]) == ("image", link, link)
    with pytest.raises(NotFoundError):
        await files.read_bytes(made["id"], ANN)
    await _files(url).write_bytes(made["id"], PNG, ANN)
    assert (await store.load_attachment(made["id"], ANN)).upload_descriptor is None
    message = {"content": [], "attachments": [made["id"]], "inference_options": {}}
    await ask("threads.create", input=message)
    (thread,) = (await store.load_threads(9, None, "asc", ANN)).data
    assert (await store.load_attachment(made["id"], ANN)).thread_id == thread.id
    assert await files.read_bytes(made["id"], ANN) == PNG
    await ask("attachments.delete", attachment_id=made["id"])
    for gone in (files.read_bytes(made["id"], ANN), store.load_attachment(made["id"], ANN)):
        with pytest.raises(NotFoundError):
            await gone
    with pytest.raises(NotFoundError):
        await files.write_bytes(made["id"], PNG, ANN)


async def test_direct_uploads(url: str) -> None:
    """Bytes and metadata are stored together, whatever type the client names; a sweep keeps them."""
    store, files = LashStore(url), LashAttachmentStore(url)
    for content, mime_type in ((PNG, "image/png"), (b"", ""), (b"\0" * 2**20, "text/plain; charset=utf-8")):
        attachment = await files.upload(content, name="f", mime_type=mime_type, context=ANN)
        assert (attachment.type, attachment.mime_type) == ("file", mime_type)
        assert await store.load_attachment(attachment.id, ANN) == attachment

        async def is_gone(_: object) -> bool:
            return True

        await lash.shared(url).attachments.sweep(0, is_gone)
        assert await LashAttachmentStore(url).read_bytes(attachment.id, ANN) == content
        await files.delete_attachment(attachment.id, ANN)
        await files.delete_attachment(attachment.id, ANN)
        with pytest.raises(NotFoundError):
            await files.read_bytes(attachment.id, ANN)


async def test_users_do_not_see_each_others_files(url: str) -> None:
    """Reads, writes and deletions of another user find nothing, also under an equal id."""
    files = _OneId(url)
    await files.upload(b"of ann", name="f", mime_type="text/plain", context=ANN)
    for foreign in (files.read_bytes("one", BOB), files.write_bytes("one", b"other", BOB)):
        with pytest.raises(NotFoundError):
            await foreign
    await files.delete_attachment("one", BOB)
    await files.upload(b"of bob", name="f", mime_type="text/plain", context=BOB)
    assert (await files.read_bytes("one", ANN), await files.read_bytes("one", BOB)) == (b"of ann", b"of bob")
    with pytest.raises(lash.ConfigError, match="user_id"):
        await files.read_bytes("one", {})


async def test_an_existing_id_is_refused(url: str) -> None:
    """One of concurrent creations and one of concurrent writes succeeds; equal bytes may be written again."""
    files = _OneId(url, url_of=lambda attachment_id, _: f"https://app.example/{attachment_id}")
    made = await asyncio.gather(
        *(files.create_attachment(_announced(1), ANN) for _ in range(3)), return_exceptions=True
    )
    assert sum(isinstance(each, AttachmentExists) for each in made) == 2
    with pytest.raises(AttachmentExists):
        await files.upload(b"x", name="f", mime_type="text/plain", context=ANN)
    with pytest.raises(lash.InvalidInput, match="expected 1 bytes"):
        await files.write_bytes("one", b"too long", ANN)
    values = [b"a", b"b", b"c"]
    wrote = await asyncio.gather(*(files.write_bytes("one", each, ANN) for each in values), return_exceptions=True)
    (winner,) = (value for value, result in zip(values, wrote, strict=True) if result is None)
    assert sum(isinstance(each, AttachmentExists) for each in wrote) == 2
    await files.write_bytes("one", winner, ANN)
    assert await files.read_bytes("one", ANN) == winner
    await files.delete_attachment("one", ANN)
    await files.create_attachment(_announced(1), ANN)
    with pytest.raises(NotFoundError):
        await files.read_bytes("one", ANN)


async def test_two_phase_uploads_need_a_url(url: str) -> None:
    """A store without the URL of an endpoint refuses to announce a file."""
    with pytest.raises(lash.ConfigError, match="url_of"):
        await LashAttachmentStore(url).create_attachment(_announced(), ANN)


async def test_a_storage_of_the_program(url: str) -> None:
    """It shares its data with an object on the URL, and stays open."""
    async with await lash.open(url) as storage:
        files = LashAttachmentStore(storage)
        attachment = await files.upload(PNG, name="cat.png", mime_type="image/png", context=ANN)
        assert await LashAttachmentStore(url).read_bytes(attachment.id, ANN) == PNG
        assert (await LashStore(storage).load_attachment(attachment.id, ANN)).name == "cat.png"
