"""Inputs that claim to be huge take little memory: a child with 1 GiB of address space reads them and raises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import TESTS_FOLDER

LONG = "LASH_FUZZ_EXAMPLES" in os.environ
CASES = (
    "bomb in a row",
    "line without an end",
    "long number",
    *(("bomb", "many lines of data", "deep file") if LONG else ()),
)


@pytest.mark.parametrize("case", CASES)
def test_what_is_huge_is_refused_in_little_memory(case: str, tmp_path: Path) -> None:
    """The child exits on its own, with a lash error and not for lack of memory."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.fuzz.small_child", case, str(tmp_path)],
        cwd=TESTS_FOLDER.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] in {"CorruptData", "InvalidInput"}, done.stdout
