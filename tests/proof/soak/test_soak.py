"""A worker under steady load: memory, files, connections, tasks, rows and the write-ahead log stay bounded.

``LASH_SOAK_MINUTES`` makes it longer; ``LASH_SOAK_REPORT`` is the directory for the page with plots.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pytest

import lash
from tests.backends import KIT
from tests.proof.contention.rows import tables
from tests.proof.soak.report import page
from tests.proof.soak.samples import Inside, Sample, unbounded
from tests.raw import raw
from tests.runtime.worker_kit import ROOT

MINUTES: Final = float(os.environ.get("LASH_SOAK_MINUTES", "0"))
RESTS: Final = 4
"""The minimum number of rests."""

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(MINUTES * 120 + 240),
]


@contextmanager
def _program(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.proof.soak.program", url]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


async def test_a_worker_under_load_stays_bounded(backend_url: str, backend_name: str, tmp_path: Path) -> None:
    """Nothing grows with the amount of work, except the tables that grow by design."""
    await (await lash.open(backend_url)).close()
    with _program(backend_url) as child:
        samples = await asyncio.to_thread(_watch, child, backend_url)
        assert child.wait(60) == 0
    problems = unbounded(samples)
    report = Path(os.environ.get("LASH_SOAK_REPORT", tmp_path)) / f"soak-{backend_name}.html"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(page(f"Soak on {backend_name}", samples, problems), encoding="utf-8")
    print(f"\n{samples[-1].inside.rounds} rounds; the report is {report}")  # noqa: T201 - the figures are in it
    assert problems == []


def _watch(child: subprocess.Popen[str], url: str) -> list[Sample]:
    """Take a sample whenever the worker reports, and let it go on for the requested time."""
    assert child.stdin is not None
    assert child.stdout is not None
    end = time.monotonic() + MINUTES * 60
    samples: list[Sample] = []
    rests = 0
    for line in child.stdout:
        samples.append(asyncio.run(_sample(url, msgspec.json.decode(line, type=Inside))))
        if samples[-1].inside.at_rest:
            rests += 1
            child.stdin.write("go\n" if rests < RESTS or time.monotonic() < end else "end\n")
            child.stdin.flush()
    assert rests >= RESTS, "the worker ended by itself"
    return samples


async def _sample(url: str, inside: Inside) -> Sample:
    names = await tables(url)
    counts = await raw(url, " UNION ALL ".join(f"SELECT '{name}', count(*) FROM \"{name}\"" for name in names))
    if url.startswith("sqlite"):
        path = Path(urlsplit(url).path.removeprefix("/"))
        log = path.with_name(path.name + "-wal")
        log_bytes, database_bytes = (each.stat().st_size for each in (log, path))
        return Sample(inside, dict(counts), 0, log_bytes, database_bytes)
    ((connections, size),) = await raw(
        url,
        "SELECT count(*) - 1, pg_database_size(current_database()) FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend'"
        f" AND application_name <> '{KIT}'",
    )
    return Sample(inside, dict(counts), connections, 0, size)
