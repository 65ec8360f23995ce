"""What runners of ADK rely on beyond its own tests of artifact services."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.artifacts.artifact_util import get_artifact_uri
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

import lash
from lash.adapters.adk import LashArtifactService

ANN: dict[str, Any] = {"app_name": "shop", "user_id": "ann"}
SESSION: dict[str, Any] = {**ANN, "session_id": "s"}


def text(value: str) -> types.Part:
    return types.Part(text=value)


async def test_versions_count_from_zero_and_come_back_as_saved(url: str) -> None:
    """Bytes, texts, long texts and files elsewhere are equal after a load, by version or as the latest."""
    service = LashArtifactService(url)
    parts = [
        types.Part.from_bytes(data=b"\x00\xff" * 1000, mime_type="image/png"),
        types.Part.from_bytes(data=b"hi", mime_type="text/plain; charset=utf-8"),
        types.Part.from_bytes(data=b"hi", mime_type="unknown"),
        text("short"),
        text("long " * 50_000),
        types.Part(inline_data=types.Blob(data=b"", mime_type="image/png", display_name="empty.png")),
        types.Part(file_data=types.FileData(file_uri="gs://bucket/file", mime_type="text/html")),
    ]
    for version, part in enumerate(parts):
        assert await service.save_artifact(**SESSION, filename="a/b.bin", artifact=part) == version
    other = LashArtifactService(url)
    for version, part in enumerate(parts):
        assert await other.load_artifact(**SESSION, filename="a/b.bin", version=version) == part
    assert await other.load_artifact(**SESSION, filename="a/b.bin") == parts[-1]
    assert await other.list_versions(**SESSION, filename="a/b.bin") == [0, 1, 2, 3, 4, 5, 6]
    for absent in (7, -1):
        assert await other.load_artifact(**SESSION, filename="a/b.bin", version=absent) is None
    assert await other.load_artifact(**SESSION, filename="a") is None
    assert await other.list_versions(**SESSION, filename="a") == []


async def test_a_saved_part_may_change(url: str) -> None:
    """Neither the part that was saved nor the one that was loaded is shared with the service; a dict will do too."""
    service = LashArtifactService(url)
    part = types.Part.from_bytes(data=b"one", mime_type="text/plain")
    await service.save_artifact(**SESSION, filename="f", artifact=part)
    assert part.inline_data is not None
    assert part.inline_data.data == b"one"
    part.inline_data.data = b"two"
    loaded = await service.load_artifact(**SESSION, filename="f")
    assert loaded == types.Part.from_bytes(data=b"one", mime_type="text/plain")
    given = {"inlineData": {"mimeType": "text/plain", "data": "aGk="}}
    assert await service.save_artifact(**SESSION, filename="f", artifact=given) == 1
    assert await service.load_artifact(**SESSION, filename="f") == types.Part.from_bytes(
        data=b"hi", mime_type="text/plain"
    )


async def test_artifacts_of_a_user_are_seen_by_all_its_sessions(url: str) -> None:
    """Each listed name loads its artifact in the scope of the list."""
    service = LashArtifactService(url)
    await service.save_artifact(**SESSION, filename="user:profile", artifact=text("ann's"))
    await service.save_artifact(**ANN, filename="bare", artifact=text("also ann's"))
    await service.save_artifact(**SESSION, filename="own", artifact=text("of s"))
    other: dict[str, Any] = {**ANN, "session_id": "t"}
    assert await service.list_artifact_keys(**SESSION) == ["own", "user:bare", "user:profile"]
    assert await service.list_artifact_keys(**other) == ["user:bare", "user:profile"]
    assert await service.list_artifact_keys(**ANN) == ["bare", "user:profile"]
    assert await service.list_artifact_keys(app_name="shop", user_id="bob", session_id="s") == []
    for scope in (SESSION, other, ANN):
        for name in await service.list_artifact_keys(**scope):
            assert await service.load_artifact(**scope, filename=name) is not None
    assert await service.load_artifact(**other, filename="user:profile") == text("ann's")
    assert await service.load_artifact(**other, filename="own") is None


async def test_metadata_of_versions(url: str) -> None:
    """A version has its number, media type, metadata, time, and a URI that other artifacts can refer to."""
    service = LashArtifactService(url)
    part = types.Part.from_bytes(data=b"x", mime_type="text/csv")
    await service.save_artifact(**SESSION, filename="f", artifact=part, custom_metadata={"k": [1, None]})
    await service.save_artifact(**SESSION, filename="f", artifact=text("x"))
    versions = await service.list_artifact_versions(**SESSION, filename="f")
    assert [(each.version, each.mime_type, each.custom_metadata) for each in versions] == [
        (0, "text/csv", {"k": [1, None]}),
        (1, "text/plain", {}),
    ]
    assert versions[0].canonical_uri == get_artifact_uri("shop", "ann", "f", 0, "s")
    assert 0 < versions[0].create_time <= versions[1].create_time
    assert await service.get_artifact_version(**SESSION, filename="f") == versions[1]
    assert await service.get_artifact_version(**SESSION, filename="f", version=0) == versions[0]
    assert await service.get_artifact_version(**SESSION, filename="f", version=2) is None
    assert await service.get_artifact_version(**SESSION, filename="g") is None
    assert await service.list_artifact_versions(**SESSION, filename="g") == []


async def test_metadata_of_any_kind(url: str) -> None:
    """Integers of any size and numbers that are not finite come back; what has no JSON form becomes text."""
    service = LashArtifactService(url)
    given = {"large": 2**80, "infinite": float("inf"), "cut": "\ud83d", "nul": "\0", "call": print}
    await service.save_artifact(**SESSION, filename="f", artifact=text("cut \ud83d"), custom_metadata=given)
    version = await service.get_artifact_version(**SESSION, filename="f")
    assert version is not None
    assert version.custom_metadata == {**given, "call": repr(print)}
    assert await service.load_artifact(**SESSION, filename="f") == text("cut ?")


async def test_references_are_followed_inside_their_scope(url: str) -> None:
    """A reference loads its target; one that leaves the scope is refused, and a cycle ends with an error."""
    service = LashArtifactService(url)
    await service.save_artifact(**SESSION, filename="target", artifact=text("content"))
    await service.save_artifact(**SESSION, filename="user:shared", artifact=text("of the user"))

    def refer(filename: str, session_id: str | None = "s", user_id: str = "ann") -> types.Part:
        uri = get_artifact_uri("shop", user_id, filename, 0, session_id)
        return types.Part(file_data=types.FileData(file_uri=uri))

    for name, target, expected in (("r", refer("target"), "content"), ("q", refer("user:shared", None), "of the user")):
        await service.save_artifact(**SESSION, filename=name, artifact=target)
        assert await service.load_artifact(**SESSION, filename=name) == text(expected)
    for outside in (refer("target", "t"), refer("target", user_id="bob")):
        with pytest.raises(InputValidationError):
            await service.save_artifact(**SESSION, filename="r", artifact=outside)
    await service.save_artifact(**SESSION, filename="loop", artifact=refer("loop"))
    with pytest.raises(InputValidationError):
        await service.load_artifact(**SESSION, filename="loop")


async def test_what_is_not_an_artifact_is_refused(url: str) -> None:
    """Parts without content, and names that are not names, raise InputValidationError and store nothing."""
    service = LashArtifactService(url)
    for part in (types.Part(), types.Part(inline_data=types.Blob(mime_type="image/png"))):
        with pytest.raises(InputValidationError):
            await service.save_artifact(**SESSION, filename="f", artifact=part)
    for names in ({"user_id": "../x"}, {"app_name": ""}, {"session_id": "a\0"}):
        with pytest.raises(InputValidationError):
            await service.save_artifact(**{**SESSION, **names}, filename="f", artifact=text("x"))
    assert await service.list_artifact_keys(**SESSION) == []


async def test_concurrent_saves_get_different_versions(url: str) -> None:
    """No version is lost or overwritten."""
    services = [LashArtifactService(url) for _ in range(4)]
    versions = await asyncio.gather(
        *(services[n % 4].save_artifact(**SESSION, filename="f", artifact=text(str(n))) for n in range(12))
    )
    assert sorted(versions) == list(range(12))
    for n, version in enumerate(versions):
        assert await services[0].load_artifact(**SESSION, filename="f", version=version) == text(str(n))


async def test_a_deleted_artifact_starts_at_version_zero(url: str) -> None:
    """Deleting removes all versions of one name, and the bytes unless another artifact has the same."""
    storage = lash.shared(url)
    service = LashArtifactService(url)
    same, single = b"same" * 100, b"single" * 100
    for name, data in (("f", same), ("f", single), ("g", same)):
        part = types.Part.from_bytes(data=data, mime_type="text/plain")
        await service.save_artifact(**SESSION, filename=name, artifact=part)
    await service.delete_artifact(**SESSION, filename="f")
    assert await service.list_artifact_keys(**SESSION) == ["g"]
    assert await service.load_artifact(**SESSION, filename="f") is None
    assert await service.load_artifact(**SESSION, filename="g") is not None
    kept = await storage.attachments.list("adk-artifacts:shop/ann/s")
    assert [entry.ref.byte_len for entry in kept.entries] == [len(same)]
    assert await service.save_artifact(**SESSION, filename="f", artifact=text("new")) == 0
    await service.delete_artifact(**SESSION, filename="never")


async def test_a_rewound_artifact_is_absent(url: str) -> None:
    """The mark that a rewind saves is a version that loads as None."""
    service = LashArtifactService(url)
    mark = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))
    await service.save_artifact(**SESSION, filename="f", artifact=text("x"))
    await service.save_artifact(**SESSION, filename="f", artifact=mark)
    assert await service.load_artifact(**SESSION, filename="f") is None
    assert await service.load_artifact(**SESSION, filename="f", version=0) == text("x")


async def test_a_storage_of_the_program(url: str) -> None:
    """It shares its data with an object on the URL, and stays open."""
    async with await lash.open(url) as storage:
        service = LashArtifactService(storage)
        assert await service.save_artifact(**SESSION, filename="f", artifact=text("a")) == 0
        assert await LashArtifactService(url).save_artifact(**SESSION, filename="f", artifact=text("b")) == 1
        assert await service.load_artifact(**SESSION, filename="f") == text("b")
