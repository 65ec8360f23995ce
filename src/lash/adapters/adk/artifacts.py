"""Artifacts of ADK in a lash storage: versions as records, bytes as attachments."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import msgspec
from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types
from pydantic_core import to_jsonable_python
from typing_extensions import override

from lash.adapters.adk.texts import json_text
from lash.adapters.attached import Attached, LeftOpen, StorageSource
from lash.adapters.formats.adk_names import FRAMEWORK, artifacts_id, artifacts_label, key_part
from lash.adapters.media import media_type_of
from lash.base.limits import MAX_PAGE
from lash.base.shapes import convert
from lash.errors import AttachmentNotFound, RevisionConflict, SessionDeleted, SessionNotFound
from lash.model.record import Record, RecordDelete, RecordPut
from lash.model.session.commit import Commit
from lash.model.session.session import Retention
from lash.stores.storage import Storage

COLLECTION: Final = "adk.artifacts"
_USER_PREFIX: Final = "user:"
_VERSION_DIGITS: Final = 9
"""Versions in keys have this many digits, so that the order of keys is theirs."""
_INLINE_LENGTH: Final = 65_536
"""The JSON of a part that is longer is an attachment, as the bytes of a part are."""
_REFERENCES: Final = 5
"""How many references from one artifact to another a load follows, as in ADK's own services."""
_REWOUND: Final = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))
"""What a rewind saves as the next version of an artifact that did not exist at its point: it loads as absent."""
_GONE: Final = (SessionNotFound, SessionDeleted)


class _Place(NamedTuple):
    """Where an artifact is: the scope of a session, or that of a user (None)."""

    app_name: str
    user_id: str
    session_id: str | None
    filename: str
    """Without the prefix of the user's scope."""

    @property
    def lash_id(self) -> str:
        return artifacts_id(self.app_name, self.user_id, self.session_id)

    @property
    def prefix(self) -> str:
        return f"{key_part(self.filename)}/"

    def key(self, version: int) -> str:
        return f"{self.prefix}{version:0{_VERSION_DIGITS}}"

    def uri(self, version: int) -> str:
        filename = self.filename if self.session_id is not None else _USER_PREFIX + self.filename
        return artifact_util.get_artifact_uri(self.app_name, self.user_id, filename, version, self.session_id)


class _Stored(msgspec.Struct, forbid_unknown_fields=False):
    """The record of a version. The part is JSON, without the bytes that are an attachment."""

    name: str
    """As the caller gave it."""
    version: int
    created: float
    part: str | None
    """None if it is the attachment."""
    attachment: str | None = None
    mime_type: str | None = None
    metadata: dict[str, Any] | str = "{}"
    """JSON text, which has numbers that JSON values of lash do not; a dict in records of earlier releases."""


class LashArtifactService(LeftOpen, BaseArtifactService):
    """Versions of files: ``Runner(…, artifact_service=LashArtifactService("sqlite:///agents.db"))``.

    It takes a storage URL or an open storage, and works from any event loop. Concurrent saves get different versions.
    Names that start with ``user:``, and artifacts without a session, belong to the user and are seen by all sessions
    of the user. Parts are returned as they were saved.
    """

    def __init__(self, source: StorageSource = "sqlite://") -> None:
        self._attached = Attached(source)

    @override
    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save an artifact whole or not at all, and return its version: 0 for the first."""
        place, part = _place(app_name, user_id, session_id, filename), ensure_part(artifact)
        _check_content(part, place)
        metadata = json.dumps(to_jsonable_python(custom_metadata or {}, serialize_unknown=True))
        return await self._attached.settle(lambda storage: _save(storage, place, filename, part, metadata))

    @override
    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """Return a version of an artifact, by default the latest; None if there is none.

        A reference to another artifact is followed.
        """
        place = _place(app_name, user_id, session_id, filename)
        return await self._attached.run(lambda storage: _load(storage, place, version, session_id))

    @override
    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """Return the names of the artifacts of a session and its user, or of the user alone, sorted.

        Each name loads its artifact in the same scope.
        """
        _place(app_name, user_id, session_id, "name")
        names = set(await self._names(app_name, user_id, None, is_prefixed=session_id is not None))
        if session_id is not None:
            names.update(await self._names(app_name, user_id, session_id, is_prefixed=False))
        return sorted(names)

    @override
    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete all versions of an artifact."""
        place = _place(app_name, user_id, session_id, filename)
        await self._attached.settle(lambda storage: _delete(storage, place))

    @override
    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """Return the versions of an artifact, the first first."""
        place = _place(app_name, user_id, session_id, filename)
        records = await self._attached.run(lambda storage: _versions(storage, place))
        return [_stored(record).version for record in records]

    @override
    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """Return the versions of an artifact with their metadata, the first first."""
        place = _place(app_name, user_id, session_id, filename)
        records = await self._attached.run(lambda storage: _versions(storage, place))
        return [_described(place, _stored(record)) for record in records]

    @override
    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Return the metadata of a version, by default the latest; None if there is none."""
        place = _place(app_name, user_id, session_id, filename)
        stored = await self._attached.run(lambda storage: _find(storage, place, version))
        return None if stored is None else _described(place, stored)

    async def close(self) -> None:
        """Do nothing: the storage stays open for its other users."""

    async def _names(self, app_name: str, user_id: str, session_id: str | None, *, is_prefixed: bool) -> list[str]:
        scope = _Place(app_name, user_id, session_id, "")
        records = await self._attached.run(lambda storage: _all(storage, scope.lash_id, ""))
        names = (_stored(record).name for record in records)
        return [_USER_PREFIX + name.removeprefix(_USER_PREFIX) for name in names] if is_prefixed else list(names)


def _place(app_name: str, user_id: str, session_id: str | None, filename: str) -> _Place:
    artifact_util.validate_path_segment(app_name, "app_name")
    artifact_util.validate_path_segment(user_id, "user_id")
    is_of_user = session_id is None or filename.startswith(_USER_PREFIX)
    if is_of_user:
        return _Place(app_name, user_id, None, filename.removeprefix(_USER_PREFIX))
    assert session_id is not None
    artifact_util.validate_path_segment(session_id, "session_id")
    return _Place(app_name, user_id, session_id, filename)


def _check_content(part: types.Part, place: _Place) -> None:
    if part.inline_data is not None:
        if part.inline_data.data is None:
            raise InputValidationError("Artifact inline_data must contain data.")
    elif part.text is None and part.file_data is None:
        raise InputValidationError("Not supported artifact type.")
    elif part.file_data is not None:
        if not part.file_data.file_uri:
            raise InputValidationError("Artifact file_data must have a file_uri.")
        if artifact_util.is_artifact_ref(part):
            _target(part, place.app_name, place.user_id, place.session_id, _REFERENCES)


def _target(
    part: types.Part, app_name: str, user_id: str, session_id: str | None, references: int
) -> artifact_util.ParsedArtifactUri:
    """Return what a reference names; raise InputValidationError if it leaves the scope or is one too many."""
    assert part.file_data is not None
    return artifact_util.resolve_artifact_reference(
        file_uri=part.file_data.file_uri or "",
        app_name=app_name,
        user_id=user_id,
        session_id=session_id,
        remaining_depth=references,
    )


async def _save(storage: Storage, place: _Place, name: str, part: types.Part, metadata: str) -> int:
    await _ensure_scope(storage, place)
    stored, content = _encoded(name, part, metadata)
    session = storage.session(place.lash_id)
    while True:
        if content is not None:
            ref = await storage.attachments.put(place.lash_id, content, media_type_of(stored.mime_type))
            stored.attachment = ref.id
        revision, latest = await session.revision(), await _find(storage, place, None)
        stored.version = 0 if latest is None else latest.version + 1
        put = RecordPut(
            collection=COLLECTION,
            key=place.key(stored.version),
            value=msgspec.to_builtins(stored),
            session_id=place.lash_id,
        )
        commit = Commit(
            session_id=place.lash_id,
            expected_revision=revision,
            attachments=() if stored.attachment is None else (stored.attachment,),
            records=(put,),
        )
        try:
            await session.commit(commit)
        except (RevisionConflict, AttachmentNotFound):
            # Another caller has saved an artifact, or deleted one with the same bytes.
            continue
        return stored.version


def _encoded(name: str, part: types.Part, metadata: str) -> tuple[_Stored, bytes | None]:
    """Return the record of a part, and the bytes that become an attachment."""
    bare, content, mime_type = _split(part)
    encoded: str | None = json_text(bare)
    if content is None and encoded is not None and len(encoded) > _INLINE_LENGTH:
        content, encoded = encoded.encode(), None
    created = ArtifactVersion(version=0, canonical_uri="").create_time
    return _Stored(name, 0, created, encoded, None, mime_type, metadata), content


def _split(part: types.Part) -> tuple[types.Part, bytes | None, str | None]:
    """Return a part without its bytes, the bytes, and the media type that ADK shows."""
    if part.inline_data is not None:
        blob = part.inline_data
        bare = part.model_copy(update={"inline_data": blob.model_copy(update={"data": b""})})
        return bare, blob.data, blob.mime_type
    if part.text is not None:
        return part, None, "text/plain"
    if part.file_data is not None and not artifact_util.is_artifact_ref(part):
        return part, None, part.file_data.mime_type
    return part, None, None


async def _load(
    storage: Storage, place: _Place, version: int | None, session_id: str | None, references: int = _REFERENCES
) -> types.Part | None:
    stored = await _find(storage, place, version)
    if stored is None:
        return None
    content = b""
    if stored.attachment is not None:
        content = (await storage.attachments.get(place.lash_id, stored.attachment)).content
    part = types.Part.model_validate_json(content if stored.part is None else stored.part)
    if stored.part is not None and part.inline_data is not None:
        part.inline_data.data = content
    if artifact_util.is_artifact_ref(part):
        target = _target(part, place.app_name, place.user_id, session_id, references)
        other = _place(target.app_name, target.user_id, target.session_id, target.filename)
        return await _load(storage, other, target.version, target.session_id, references - 1)
    return None if part == _REWOUND else part


async def _delete(storage: Storage, place: _Place) -> None:
    """Delete the records of an artifact, and the bytes that no other artifact of the scope has."""
    while records := await _versions(storage, place):
        deletes = [RecordDelete(collection=COLLECTION, key=each.key, session_id=place.lash_id) for each in records]
        for start in range(0, len(deletes), MAX_PAGE):
            await storage.records.delete_many(deletes[start : start + MAX_PAGE])
        for attachment in {_stored(each).attachment for each in records} - await _attachments(storage, place):
            if attachment is not None:
                await _forget(storage, place, attachment)


async def _forget(storage: Storage, place: _Place, attachment: str) -> None:
    """Delete bytes, unless another caller has saved the same bytes meanwhile."""
    try:
        found = await storage.attachments.get(place.lash_id, attachment)
    except AttachmentNotFound:
        return
    await storage.attachments.forget(place.lash_id, attachment)
    if attachment in await _attachments(storage, place):
        await storage.attachments.put(place.lash_id, found.content, found.ref.media_type)
        await storage.attachments.commit_refs(place.lash_id, [attachment])


async def _attachments(storage: Storage, place: _Place) -> set[str | None]:
    """Return the attachments of all artifacts of the scope."""
    return {_stored(each).attachment for each in await _all(storage, place.lash_id, "")}


async def _ensure_scope(storage: Storage, place: _Place) -> None:
    """Create the lash session that holds the artifacts of a scope, if it does not exist."""
    labels = {"framework": FRAMEWORK, **artifacts_label(place.app_name, place.user_id)}
    await storage.sessions.create(place.lash_id, labels=labels, retention=Retention.latest())


async def _find(storage: Storage, place: _Place, version: int | None) -> _Stored | None:
    """Return a version of an artifact, by default the latest."""
    try:
        if version is None:
            latest = await storage.records.list(
                COLLECTION, session_id=place.lash_id, prefix=place.prefix, limit=1, reverse=True
            )
            return _stored(latest[0]) if latest else None
        if version < 0:
            return None
        record = await storage.records.get(COLLECTION, place.key(version), session_id=place.lash_id)
    except _GONE:
        return None
    return None if record is None else _stored(record)


async def _versions(storage: Storage, place: _Place) -> list[Record]:
    return await _all(storage, place.lash_id, place.prefix)


async def _all(storage: Storage, lash_id: str, prefix: str) -> list[Record]:
    records: list[Record] = []
    while True:
        try:
            page = await storage.records.list(
                COLLECTION,
                session_id=lash_id,
                prefix=prefix,
                after=records[-1].key if records else None,
                limit=MAX_PAGE,
            )
        except _GONE:
            return []
        records += page
        if len(page) < MAX_PAGE:
            return records


def _stored(record: Record) -> _Stored:
    return convert(record.value, _Stored)


def _described(place: _Place, stored: _Stored) -> ArtifactVersion:
    return ArtifactVersion(
        version=stored.version,
        canonical_uri=place.uri(stored.version),
        custom_metadata=json.loads(stored.metadata) if isinstance(stored.metadata, str) else stored.metadata,
        create_time=stored.created,
        mime_type=stored.mime_type,
    )
