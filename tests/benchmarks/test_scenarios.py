"""Every scenario that needs no peer library runs, at a size too small for its figures to mean anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kit.registry import load_all
from benchmarks.kit.workspace import workspace
from benchmarks.run import main, tell
from lash.testing.postgres_server import PostgresServer

pytestmark = pytest.mark.proof

_KEYS = {"scenario", "ours", "other", "ratio", "unit", "versions"}
_WIDE = ("postgres-commit", "postgres-append", "postgres-claim")
"""Like postgres-steps, these are measured with 1, 8 and 32 callers; 8 suffice here."""
_ALONE = tuple(
    f"{name}-8" if name in _WIDE else name
    for name, each in load_all().items()
    if not each.peers and each.part_of is None
)
_PROMISED = """
sqlite-commit sqlite-commit-16 sqlite-append sqlite-steps postgres-commit postgres-append postgres-claim postgres-steps
postgres-commit-rows chat chats-16 sqlite-processes reopen steps queue recover gc lost-updates flat-commit flat-append
flat-claim flat-active-tail flat-idle flat-turn wake-latency signal-latency enqueue-latency import-time idle-worker
parked disk fleet fleet-throughput fleet-peers append-32
