"""Bytes in a real S3 server, including one that dies half-way."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import lash
from lash.bytestore.s3 import S3Bytes
from lash.errors import ConfigError, InvalidInput, StorageFailure, StoreUnavailable, SweepIncomplete
from tests.s3_server import S3Server

CONTENT = b"content" * 1_000
ID = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def objects(s3_server: S3Server) -> S3Bytes:
    return s3_server.byte_store(prefix=uuid.uuid4().hex)


@pytest.fixture
def mortal() -> Iterator[S3Server]:
    """A private server that the test can kill."""
    with S3Server() as server:
        yield server


async def gone(entry: lash.model.AttachmentEntry) -> bool:
    return True


async def test_bytes_come_back(objects: S3Bytes) -> None:
    """Stored bytes are returned until they are deleted; deleting again is no error."""
    assert await objects.get(ID) is None
    await objects.put(ID, CONTENT)
    await objects.put(ID, CONTENT)
    assert await objects.get(ID) == CONTENT
    await objects.delete(ID)
    await objects.delete(ID)
    assert await objects.get(ID) is None
    assert await objects.sweep_stale() == 0


async def test_prefixes_are_apart(s3_server: S3Server) -> None:
    """Two storages share a bucket under separate prefixes."""
    one, two = s3_server.byte_store(prefix=uuid.uuid4().hex), s3_server.byte_store(prefix=uuid.uuid4().hex)
    await one.put(ID, CONTENT)
    assert await two.get(ID) is None
    await two.delete(ID)
    assert await one.get(ID) == CONTENT


async def test_large_bytes_are_one_object(objects: S3Bytes) -> None:
    """Bytes larger than one part come back whole."""
    content = bytes(range(256)) * 50_000
    digest = hashlib.sha256(content).hexdigest()
    await objects.put(digest, content)
    assert await objects.get(digest) == content


async def test_a_missing_bucket_is_a_failure_not_absence(s3_server: S3Server) -> None:
    """A failing read is never reported as absence: without its bucket every call fails."""
    objects = s3_server.byte_store(bucket="no-such-bucket")
    for call in (objects.put(ID, CONTENT), objects.get(ID), objects.delete(ID)):
        with pytest.raises(StorageFailure, match="no-such-bucket"):
            await call


@pytest.mark.parametrize("bad", ["", "..", "../" + "0" * 61, "A" * 64, "0" * 64 + "/x"])
async def test_no_other_text_becomes_a_key(objects: S3Bytes, bad: str) -> None:
    """An id that is not 64 lowercase hex digits never reaches the server."""
    for call in (objects.put(bad, CONTENT), objects.get(bad), objects.delete(bad)):
        with pytest.raises(InvalidInput):
            await call


@asynccontextmanager
async def killed_after(server: S3Server, sent: int) -> AsyncIterator[str]:
    """Give an endpoint in front of the server that kills it once this many bytes of one request have passed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", server.port)
        except ConnectionError:
            writer.close()
            return
        answers = asyncio.create_task(_forward(far_reader, writer))
        passed = 0
        while data := await reader.read(65536):
            passed += len(data)
            if passed > sent:
                server.kill()
                break
            far_writer.write(data)
        answers.cancel()
        far_writer.close()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_server_killed_half_way_loses_nothing(backend_url: str, mortal: S3Server) -> None:
    """Puts, reads and sweeps fail clearly when the server dies, and work once it is back."""
    large = bytes(range(256)) * 20_000
    async with killed_after(mortal, len(large) // 2) as endpoint:
        byte_store = mortal.byte_store(endpoint=endpoint, timeout_s=2.0)
        async with await lash.open(backend_url, attachment_bytes=byte_store) as storage:
            await storage.sessions.create("s")
            small = await storage.attachments.put("s", b"small", "text/plain")
            with pytest.raises(StoreUnavailable, match="cannot write"):
                await storage.attachments.put("s", large, "video/mp4")
            with pytest.raises(StoreUnavailable, match="cannot read"):
                await storage.attachments.get("s", small.id)
            with pytest.raises(SweepIncomplete) as raised:
                await storage.attachments.sweep(0, gone)
            failed = {problem.attachment_id for problem in raised.value.report.failed}
            assert failed == {small.id, hashlib.sha256(large).hexdigest()}
    mortal.start()
    async with await lash.open(backend_url, attachment_bytes=mortal.byte_store()) as storage:
        assert set((await storage.attachments.sweep(0, gone)).deleted) == failed
        ref = await storage.attachments.put("s", large, "video/mp4")
        assert (await storage.attachments.get("s", ref.id)).content == large


def test_wrong_options_are_refused() -> None:
    """A bucket name that is not text raises ConfigError when the store is made."""
    with pytest.raises(ConfigError, match="bucket"):
        S3Bytes(5)  # type: ignore[arg-type]


def test_the_extra_is_named_when_it_is_missing(tmp_path: Path) -> None:
    """Without obstore, the store raises an error that names the package to install."""
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "import lash\n"
        "try: lash.S3Bytes('bucket')\n"
        "except lash.ConfigError as error: print(error)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert "lash-runtime[s3]" in answer
