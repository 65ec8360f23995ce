"""Records go with exported, copied and moved sessions and storages."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import pytest

from lash.errors import InvalidInput, SessionExists
from lash.model.record import Record, RecordPut
from lash.stores.storage import Storage
from lash.transfer import copy_storage, import_session
from tests.factories.session import created, started
from tests.transfer.kit import carried, comparable, exported, opened, parsed

VALUES: dict[str, Any] = {"a": {"z": 1, "b": [1.5, None]}, "b": b"\xff\x00", "c": None, "d": "", "e": b""}


async def _fill(storage: Storage, session_id: str | None) -> None:
    """Put records of every kind into two collections."""
    for collection in ("notes", "Z"):
        await storage.records.put_many(
            [
                RecordPut(collection=collection, key=key, value=value, session_id=session_id, index={"key": key})
                for key, value in VALUES.items()
            ]
        )
    await storage.records.put("notes", "late", 1, session_id=session_id, expires_at_ms=2**52)


async def _stored(storage: Storage, session_id: str | None) -> list[tuple[object, ...]]:
    found: list[Record] = []
    for collection in await storage.records.collections(session_id=session_id):
        found += await storage.records.list(collection, session_id=session_id)
    return [(each.collection, each.key, each.value, each.index, each.expires_at_ms) for each in found]


async def test_a_file_carries_the_records_of_its_session(backend_url: str) -> None:
    """JSON, bytes, index fields and expiry are the same after export and import; expired records are left out."""
    async with opened(backend_url, "sqlite://") as (source, target):
        await started(source)
        await _fill(source, "s")
        await source.records.put("notes", "over", 1, session_id="s", expires_at_ms=1)
        await source.records.put("shared", "k", 1)
        first = await exported(source)
        assert comparable(await carried(source, target)) == comparable(first)
        assert len(await _stored(source, "s")) == 11
        assert await _stored(target, "s") == await _stored(source, "s")
        assert await _stored(target, None) == []
        header = parsed(first)[0]
        assert (header["version"], header["counts"]["records"]) == (2, 11)
        again = await import_session(target, io.BytesIO(first))
        assert not again.created
        await target.records.delete("notes", "late", session_id="s")
        assert not (await import_session(target, io.BytesIO(first))).created
        await target.records.put("notes", "a", "changed", session_id="s")
        with pytest.raises(SessionExists):
            await import_session(target, io.BytesIO(first))


async def test_a_session_without_a_commit_carries_its_records() -> None:
    """A session that was only created takes its records along, and an interrupted import of it is finished."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        await created(source)
        await _fill(source, "s")
        file = await exported(source)
        assert comparable(await carried(source, target)) == comparable(file)
        await target.records.delete("notes", "a", session_id="s")
        assert (await import_session(target, io.BytesIO(file))).created
        assert await _stored(target, "s") == await _stored(source, "s")


async def test_a_file_without_records_is_of_version_1() -> None:
    """A session without records is written as before, so that older readers take it."""
    async with opened("sqlite://") as (storage,):
        await started(storage)
        header = parsed(await exported(storage))[0]
    assert header["version"] == 1
    assert "records" not in header["counts"]


@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"record","collection":"c","key":"k"}',
        '{"kind":"record","collection":"c","key":"k","json":1,"base64":"MQ=="}',
        '{"kind":"record","collection":"c","key":"k","base64":"?"}',
        '{"kind":"record","collection":"","key":"k","json":1}',
        '{"kind":"record","collection":"c","key":"k","json":1,"index":{"a b":"x"}}',
    ],
)
async def test_a_line_that_is_no_record_is_refused(line: str) -> None:
    """A record without a value, with two, or with a wrong name refuses the file."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        await started(source)
        await source.records.put("c", "k", 1, session_id="s")
        lines = (await exported(source)).splitlines()
        wrong = [line.encode() if b'"kind":"record"' in each else each for each in lines]
        with pytest.raises(InvalidInput):
            await import_session(target, io.BytesIO(_sealed(wrong)))
        assert (await target.sessions.list()).sessions == ()


def _sealed(lines: list[bytes]) -> bytes:
    """Return the lines with an end line that fits them."""
    body = b"".join(line + b"\n" for line in lines[:-1])
    content = b"".join(line + b"\n" for line in lines[1:-1] if b'"kind":"data"' not in line)
    sums = hashlib.sha256(content).hexdigest(), hashlib.sha256(body).hexdigest()
    return body + b'{"kind":"end","content":"%s","sha256":"%s"}\n' % tuple(each.encode() for each in sums)


async def test_a_copy_takes_all_records_along(backend_url: str) -> None:
    """A copy has the records of sessions and of the storage; repeated it skips them, and it overwrites none."""
    async with opened(backend_url, "sqlite://") as (source, target):
        await started(source)
        await _fill(source, "s")
        await _fill(source, None)
        report = await copy_storage(source, target)
        assert (report.copied["record"], report.is_complete) == (22, True)
        for owner in (None, "s"):
            assert await _stored(target, owner) == await _stored(source, owner)
        again = await copy_storage(source, target)
        assert (again.copied.get("record", 0), again.skipped["record"]) == (0, 22)
        await target.records.put("notes", "a", "changed")
        refused = (await copy_storage(source, target)).refused
        assert [(each.noun, each.name) for each in refused] == [("record", "notes/a")]
        found = await target.records.get("notes", "a")
        assert found is not None
        assert found.value == "changed"
