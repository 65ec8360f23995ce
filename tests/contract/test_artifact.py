"""Laws of artifacts: a ref always returns the same bytes, and never other ones."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final

import pytest

from lash.base.compression import Compression
from lash.errors import ArtifactNotFound, CorruptData, InvalidInput
from lash.model.artifact import ArtifactRef, ArtifactSummary, ProcessEnvironment
from lash.testing.harness import Harness
from tests.factories.session import MOMENT

SIZES: Final = (0, 1, 1_024, 4_096, 100_000)
BAD_REFS: Final[tuple[Any, ...]] = ("", "x", "0" * 63, "0" * 65, "A" * 64, "../" + "0" * 61, b"0" * 64, None, 7)


class TestArtifact:
    """Laws of artifacts."""

    async def test_bytes_come_back_under_their_hash(self, harness: Harness) -> None:
        """This storage and another return the bytes that were put; the ref is their SHA-256."""
        storage = await harness.open()
        for size in SIZES:
            content = bytes(range(256)) * (size // 256) + b"y" * (size % 256)
            ref = await storage.artifacts.put("modules", content)
            assert ref == hashlib.sha256(content).hexdigest()
            assert await storage.artifacts.get("modules", ref) == content
            assert await (await harness.open()).artifacts.get("modules", ref) == content

    async def test_putting_again_changes_nothing(self, harness: Harness) -> None:
        """Putting the same bytes again is idempotent; the first artifact stays, with its creation time."""
        storage = await harness.open()
        await storage.artifacts.put("modules", b"code")
        first = await storage.artifacts.list("modules")
        await harness.clock.advance(5_000)
        await asyncio.gather(*(storage.artifacts.put("modules", b"code") for _ in range(5)))
        assert await storage.artifacts.list("modules") == first
        assert len(first.artifacts) == 1

    async def test_namespaces_are_apart(self, harness: Harness) -> None:
        """An artifact is found only in its own namespace; deleting it leaves other namespaces alone."""
        storage = await harness.open()
        ref = await storage.artifacts.put("one", b"code")
        with pytest.raises(ArtifactNotFound):
            await storage.artifacts.get("two", ref)
        await storage.artifacts.put("two", b"code")
        assert await storage.artifacts.delete("one", ref)
        assert not await storage.artifacts.exists("one", ref)
        assert await storage.artifacts.get("two", ref) == b"code"

    async def test_an_unknown_ref_is_not_found(self, harness: Harness) -> None:
        """Loading a ref that was never put raises ArtifactNotFound, which names it."""
        storage = await harness.open()
        ref = ArtifactRef("0" * 64)
        assert not await storage.artifacts.exists("modules", ref)
        with pytest.raises(ArtifactNotFound) as raised:
            await storage.artifacts.get("modules", ref)
        assert (raised.value.namespace, raised.value.ref) == ("modules", ref)

    async def test_artifacts_survive_reopening(self, harness: Harness) -> None:
        """An artifact survives closing and reopening the storage."""
        ref = await (await harness.open()).artifacts.put("modules", b"code" * 5_000)
        storage = await harness.reopen()
        assert await storage.artifacts.exists("modules", ref)
        assert await storage.artifacts.get("modules", ref) == b"code" * 5_000

    async def test_profiles_share_refs(self, harness: Harness) -> None:
        """Compression changes neither ref nor content; every profile reads what another wrote."""
        content = b"compressible " * 1_000
        refs = set()
        for profile in Compression:
            storage = await harness.open(compression=profile)
            refs.add(await storage.artifacts.put(profile.value, content))
        for profile in Compression:
            reader = await harness.open()
            assert await reader.artifacts.get(profile.value, next(iter(refs))) == content
        assert len(refs) == 1

    async def test_a_deleted_artifact_is_gone(self, harness: Harness) -> None:
        """An artifact is deleted once, even if it was just read into the cache."""
        storage = await harness.open()
        ref = await storage.artifacts.put("modules", b"code")
        assert await storage.artifacts.get("modules", ref) == b"code"
        assert [await storage.artifacts.delete("modules", ref) for _ in range(2)] == [True, False]
        with pytest.raises(ArtifactNotFound):
            await storage.artifacts.get("modules", ref)
        assert await storage.artifacts.put("modules", b"code") == ref
        assert await storage.artifacts.get("modules", ref) == b"code"

    async def test_pages_show_every_artifact_once(self, harness: Harness) -> None:
        """Pages are ordered by ref, neither overlap nor leave gaps, and show sizes and times."""
        storage = await harness.open()
        contents = [b"%d" % number for number in range(7)]
        for content in contents:
            await storage.artifacts.put("modules", content)
        await storage.artifacts.put("others", b"apart")
        seen: list[ArtifactSummary] = []
        cursor = None
        while True:
            page = await storage.artifacts.list("modules", limit=3, cursor=cursor)
            seen.extend(page.artifacts)
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.artifacts) == 3
        assert [summary.ref for summary in seen] == sorted(hashlib.sha256(content).hexdigest() for content in contents)
        assert {(summary.size, summary.created_at_ms) for summary in seen} == {(1, harness.clock.now_ms())}

    async def test_namespaces_are_those_that_hold_something(self, harness: Harness) -> None:
        """Each namespace is listed once, sorted; deleting its last artifact removes it."""
        storage = await harness.open()
        assert await storage.artifacts.namespaces() == ()
        for namespace, content in (("zebra", b"1"), ("Apple", b"2"), ("modules", b"3"), ("modules", b"4")):
            await storage.artifacts.put(namespace, content)
        assert await storage.artifacts.namespaces() == ("Apple", "modules", "zebra")
        await storage.artifacts.delete("zebra", ArtifactRef(hashlib.sha256(b"1").hexdigest()))
        assert await storage.artifacts.namespaces() == ("Apple", "modules")

    async def test_equal_environments_share_a_ref(self, harness: Harness) -> None:
        """The ref of an environment depends on its content, not on the order of its keys."""
        storage = await harness.open()
        first = await storage.artifacts.put_environment(
            ProcessEnvironment(body={"policy": {"a": 1, "b": [2]}, "x": None})
        )
        same = await storage.artifacts.put_environment(
            ProcessEnvironment(body={"x": None, "policy": {"b": [2], "a": 1}})
        )
        other = await storage.artifacts.put_environment(ProcessEnvironment(body={"x": None}))
        assert first == same != other
        loaded = await storage.artifacts.get_environment(first)
        assert loaded.body == {"policy": {"a": 1, "b": [2]}, "x": None}

    async def test_a_loaded_environment_belongs_to_its_caller(self, harness: Harness) -> None:
        """Mutating a loaded environment changes neither the stored one nor what others load."""
        storage = await harness.open()
        ref = await storage.artifacts.put_environment(ProcessEnvironment(body={"tools": ["search"]}))
        (await storage.artifacts.get_environment(ref)).body["tools"].append("shell")
        assert (await storage.artifacts.get_environment(ref)).body == {"tools": ["search"]}

    async def test_other_bytes_are_no_environment(self, harness: Harness) -> None:
        """Loading other bytes, or an unknown field, as an environment raises CorruptData."""
        storage = await harness.open()
        for content in (b"code", b'{"body": 1}', b'{"bodies": {}}'):
            ref = await storage.artifacts.put("process_environment", content)
            with pytest.raises(CorruptData):
                await storage.artifacts.get_environment(ref)

    @pytest.mark.parametrize("body", [None, [1], {"k": float("nan")}, {"k": b"x"}, {1: 2}, {"k": MOMENT}, {"k": 2**64}])
    async def test_an_environment_that_is_no_json_is_refused(self, harness: Harness, body: Any) -> None:  # noqa: ANN401
        """An environment that JSON would not return unchanged is InvalidInput."""
        storage = await harness.open()
        with pytest.raises(InvalidInput):
            await storage.artifacts.put_environment(ProcessEnvironment(body=body))
        assert (await storage.artifacts.list("process_environment")).artifacts == ()

    @pytest.mark.parametrize("bad", BAD_REFS)
    async def test_what_is_no_ref_is_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """A ref is 64 lowercase hex digits; anything else is InvalidInput."""
        storage = await harness.open()
        for call in (storage.artifacts.get, storage.artifacts.exists, storage.artifacts.delete):
            with pytest.raises(InvalidInput):
                await call("modules", bad)

    @pytest.mark.parametrize("bad", ["", " ", "x" * 256, "a\0b", None, 1, b"n"])
    async def test_what_is_no_namespace_is_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """A namespace is an identifier; anything else is InvalidInput."""
        storage = await harness.open()
        ref = ArtifactRef("0" * 64)
        calls = (
            storage.artifacts.put(bad, b""),
            storage.artifacts.get(bad, ref),
            storage.artifacts.exists(bad, ref),
            storage.artifacts.delete(bad, ref),
            storage.artifacts.list(bad),
        )
        for call in calls:
            with pytest.raises(InvalidInput):
                await call

    @pytest.mark.parametrize("bad", ["text", None, bytearray(b"x"), 5])
    async def test_what_is_not_bytes_is_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """Content is bytes; anything else is InvalidInput."""
        with pytest.raises(InvalidInput):
            await (await harness.open()).artifacts.put("modules", bad)

    @pytest.mark.parametrize("bad", [{"limit": 0}, {"limit": 1_001}, {"limit": "1"}, {"cursor": "x"}, {"cursor": 5}])
    async def test_what_is_no_page_is_refused(self, harness: Harness, bad: dict[str, Any]) -> None:
        """Page sizes and cursors are checked."""
        with pytest.raises(InvalidInput):
            await (await harness.open()).artifacts.list("modules", **bad)
