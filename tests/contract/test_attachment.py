"""The public contract of attachments on our own backends and byte stores."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lash.bytestore.file import FileBytes
from lash.testing.contract.attachment import AttachmentContract
from lash.testing.contract.attachment_commit import AttachmentCommitContract
from lash.testing.contract.attachment_sweep import AttachmentSweepContract
from lash.testing.harness import Harness
from tests.contract.harnesses import BytesHarness
from tests.s3_server import S3Server


class TestAttachment(AttachmentContract):
    """On each backend, with the bytes in the database."""


class TestAttachmentSweep(AttachmentSweepContract):
    """On each backend, with bytes that the test controls."""


class TestAttachmentCommit(AttachmentCommitContract):
    """On each backend: what a commit does to attachments."""


class TestAttachmentFiles(AttachmentContract):
    """On each backend, with the bytes in files."""

    @pytest.fixture
    def harness(self, harness: Harness, tmp_path: Path) -> BytesHarness:
        return BytesHarness(harness, FileBytes(tmp_path / "attachments"))


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"])
class TestAttachmentS3(AttachmentContract):
    """On each durable backend, with the bytes in a real S3 server."""

    @pytest.fixture
    def harness(self, harness: Harness, s3_server: S3Server) -> BytesHarness:
        return BytesHarness(harness, s3_server.byte_store(prefix=uuid.uuid4().hex))
