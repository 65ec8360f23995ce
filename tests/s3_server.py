"""A real S3 server on loopback, in a process of its own that a test may kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Self

from lash.bytestore.s3 import S3Bytes

BUCKET = "attachments"
_START_SECONDS = 30.0


class S3Server:
    """A moto server. It forgets everything when it stops."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server on its port, wait until it answers, and create the bucket."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_SECONDS
        while not self._create_bucket():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError("the S3 server did not start")
            time.sleep(0.05)

    def kill(self) -> None:
        """End the server at once, in the middle of whatever it does."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def byte_store(
        self, *, prefix: str = "", bucket: str = BUCKET, endpoint: str | None = None, timeout_s: float = 10.0
    ) -> S3Bytes:
        """Return a byte store on the server, or on what stands before it."""
        return S3Bytes(
            bucket,
            prefix=prefix,
            endpoint=endpoint or self.endpoint,
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",
            timeout_s=timeout_s,
        )

    def _create_bucket(self) -> bool:
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=test/20240101/us-east-1/s3/aws4_request")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
