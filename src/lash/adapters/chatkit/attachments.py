"""The bytes of ChatKit's attachments in a lash storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from chatkit.store import AttachmentStore, NotFoundError
from chatkit.types import (
    Attachment,
    AttachmentCreateParams,
    AttachmentUploadDescriptor,
    FileAttachment,
    ImageAttachment,
)
from pydantic import AnyUrl, TypeAdapter

from lash.adapters.attached import Attached, LeftOpen, StorageSource
from lash.adapters.chatkit.errors import AttachmentExists
from lash.adapters.chatkit.names import ATTACHMENTS, below, bytes_id, owner_of, user_of
from lash.adapters.chatkit.store import json_of
from lash.adapters.media import media_type_of
from lash.base.shapes import convert
from lash.errors import (
    AttachmentNotFound,
    ConfigError,
    InvalidInput,
    RecordConflict,
    RevisionConflict,
    SessionDeleted,
    SessionNotFound,
)
from lash.model.record import RecordPut
from lash.model.session.commit import Commit
from lash.model.session.session import Retention
from lash.stores.storage import Storage

FILE: Final = "chatkit.file"
_KEY: Final = "file"
_MISSING: Final = (SessionNotFound, SessionDeleted, AttachmentNotFound)
_attachment: Final[TypeAdapter[Attachment]] = TypeAdapter(Attachment)


class _File(msgspec.Struct, frozen=True):
    """What is known of a file: one record in the session of its attachment."""

    mime_type: str
    size: int | None
    """As the client has announced it; None for a direct upload."""
    content: str | None = None
    """The id of the bytes; None until they are stored."""


class LashAttachmentStore(LeftOpen, AttachmentStore[Any]):
    """Uploaded files: ``MyServer(store=LashStore(url), attachment_store=LashAttachmentStore(url))``.

    It takes a storage URL or an open storage. Files belong to the user of the request's context, and no other user
    sees them. An id that exists is refused. ``url_of`` returns the URL of the application's endpoint for an attachment
    id: PUT calls `write_bytes`, GET calls `read_bytes`. Two-phase uploads and previews of images need it.
    """

    def __init__(
        self,
        source: StorageSource = "sqlite://",
        *,
        url_of: Callable[[str, Any], str] | None = None,
        user: Callable[[Any], str] = user_of,
    ) -> None:
        self._attached = Attached(source)
        self._url_of = url_of
        self._user = user

    async def create_attachment(self, input: AttachmentCreateParams, context: Any) -> Attachment:  # noqa: A002, ANN401
        """Announce a file whose bytes the client uploads next; raise AttachmentExists if its id exists."""
        if self._url_of is None:
            raise ConfigError("two-phase uploads need LashAttachmentStore(…, url_of=…); or store files with upload()")
        attachment = self._described(input.name, input.mime_type, context)
        url = AnyUrl(self._url_of(attachment.id, context))
        attachment.upload_descriptor = AttachmentUploadDescriptor(url=url, method="PUT")
        user, file = self._user(context), _File(input.mime_type, input.size)
        if not await self._attached.settle(lambda storage: _create(storage, user, attachment.id, file)):
            raise AttachmentExists(attachment.id)
        return attachment

    async def write_bytes(self, attachment_id: str, content: bytes, context: Any) -> None:  # noqa: ANN401
        """Store the bytes of a file that `create_attachment` announced; a repeated call with equal bytes is accepted.

        Raises NotFoundError if it was not announced or is deleted, AttachmentExists if it has other bytes, and
        InvalidInput if the client announced another size.
        """
        user = self._user(context)
        await self._attached.settle(lambda storage: _upload(storage, user, attachment_id, bytes(content), None))

    async def upload(self, content: bytes, *, name: str, mime_type: str, context: Any) -> Attachment:  # noqa: ANN401
        """Store a file that was uploaded directly, and its metadata in the same commit; return the metadata.

        Raises AttachmentExists if its id exists.
        """
        user, attachment = self._user(context), self._described(name, mime_type, context)

        async def store(storage: Storage) -> None:
            if not await _create(storage, user, attachment.id, _File(mime_type, None)):
                file = await _file(storage, bytes_id(user, attachment.id))
                if file is None or file.size is not None or file.content is not None:
                    raise AttachmentExists(attachment.id)
            await _upload(storage, user, attachment.id, bytes(content), attachment)

        await self._attached.settle(store)
        return attachment

    async def read_bytes(self, attachment_id: str, context: Any) -> bytes:  # noqa: ANN401 (the application's)
        """Return the bytes of a file, or raise NotFoundError."""
        session = bytes_id(self._user(context), attachment_id)

        async def read(storage: Storage) -> bytes | None:
            file = await _file(storage, session)
            if file is None or file.content is None:
                return None
            try:
                return (await storage.attachments.get(session, file.content)).content
            except _MISSING:
                return None

        content = await self._attached.run(read)
        if content is None:
            raise NotFoundError(f"File {attachment_id} not found")
        return content

    async def delete_attachment(self, attachment_id: str, context: Any) -> None:  # noqa: ANN401 (the application's)
        """Delete the bytes of a file, if there are any; the server deletes the metadata from its store."""
        session = bytes_id(self._user(context), attachment_id)
        await self._attached.settle(lambda storage: _delete(storage, session))

    def _described(self, name: str, mime_type: str, context: Any) -> FileAttachment | ImageAttachment:  # noqa: ANN401
        attachment_id = self.generate_attachment_id(mime_type, context)
        if self._url_of is None or not mime_type.startswith("image/"):
            return FileAttachment(id=attachment_id, name=name, mime_type=mime_type)
        url = AnyUrl(self._url_of(attachment_id, context))
        return ImageAttachment(id=attachment_id, name=name, mime_type=mime_type, preview_url=url)


async def _create(storage: Storage, user: str, attachment_id: str, file: _File) -> bool:
    """Create the session of an attachment; return False if it exists."""
    session = bytes_id(user, attachment_id)
    made = await storage.sessions.create(
        session,
        owner=owner_of(user),
        labels={"framework": "chatkit"},
        retention=Retention.latest(),
        commit=Commit(session_id=session, expected_revision=0, records=(_put(session, file),)),
    )
    return made.created


async def _upload(
    storage: Storage, user: str, attachment_id: str, content: bytes, attachment: Attachment | None
) -> None:
    """Store the bytes of an attachment in one commit with its metadata: new, or without the instructions to upload."""
    session = bytes_id(user, attachment_id)
    try:
        while True:
            revision, file = await storage.session(session).revision(), await _file(storage, session)
            if file is None:
                raise NotFoundError(f"File {attachment_id} not found")
            _check_size(file, content)
            if file.content is not None:
                if (await storage.attachments.get(session, file.content)).content != content:
                    raise AttachmentExists(attachment_id)
                return
            ref = await storage.attachments.put(session, content, media_type_of(file.mime_type))
            metadata = await _metadata(storage, below(user, attachment_id), attachment)
            commit = Commit(
                session_id=session,
                expected_revision=revision,
                attachments=(ref.id,),
                records=(_put(session, msgspec.structs.replace(file, content=ref.id)), *metadata),
            )
            try:
                await storage.session(session).commit(commit)
            except (RevisionConflict, RecordConflict):
                # Another request has stored bytes, or changed the metadata meanwhile.
                continue
            return
    except _MISSING as missing:
        raise NotFoundError(f"File {attachment_id} not found") from missing


async def _metadata(storage: Storage, key: str, new: Attachment | None) -> tuple[RecordPut, ...]:
    """Return the write of new metadata; by default of the stored one, without the instructions to upload."""
    if new is not None:
        return (RecordPut(collection=ATTACHMENTS, key=key, value=_attachment.dump_json(new).decode()),)
    record = await storage.records.get(ATTACHMENTS, key)
    if record is None:
        return ()
    known = _attachment.validate_json(json_of(record)).model_copy(update={"upload_descriptor": None})
    value = _attachment.dump_json(known).decode()
    return (RecordPut(collection=ATTACHMENTS, key=key, value=value, expected_version=record.version),)


async def _file(storage: Storage, session: str) -> _File | None:
    try:
        record = await storage.records.get(FILE, _KEY, session_id=session)
    except _MISSING:
        return None
    return None if record is None else convert(record.value, _File)


async def _delete(storage: Storage, session: str) -> None:
    await storage.sessions.delete(session)


def _put(session: str, file: _File) -> RecordPut:
    return RecordPut(collection=FILE, key=_KEY, value=msgspec.to_builtins(file), session_id=session)


def _check_size(file: _File, content: bytes) -> None:
    if file.size is not None and file.size != len(content):
        raise InvalidInput(
            f"expected {file.size:,} bytes, as announced, got {len(content):,}; create another attachment"
        )
