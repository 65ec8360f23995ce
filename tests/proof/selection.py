"""Which tests below this directory ``make test`` runs, which ``make proof`` runs, and which both run."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

DIRECTORY: Final = Path(__file__).parent
IN_TEST: Final = (
    "concurrency",
    "contention/test_frozen.py",
    "contention/test_stopped.py",
    "faults/postgres/test_failover.py",
    "faults/sqlite/test_disk_faults.py",
    "faults/sqlite/test_power_cut.py",
    "model/test_kit.py",
    "model/test_lease.py",
    "security",
)
"""Run by ``make test``: guarantees, and what takes seconds. One state machine stands for the others."""
SAMPLED: Final = (
    "concurrency/test_process_workers.py",
    "contention/test_contention.py",
)
"""Run by both: ``make test`` runs a short form, ``make proof`` a long one, as an environment variable says."""


def mark_of(path: Path) -> Literal["proof", "sampled"] | None:
    """Return the mark of the tests in a file; None if only ``make test`` runs them."""
    if not path.is_relative_to(DIRECTORY):
        return None
    if _is_below(path, SAMPLED):
        return "sampled"
    return None if _is_below(path, IN_TEST) else "proof"


def _is_below(path: Path, names: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(DIRECTORY / name) for name in names)
