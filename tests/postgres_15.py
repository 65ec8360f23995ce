"""The oldest supported PostgreSQL server, from Debian's packages; unlike the one from PyPI it has TLS and ICU.

Its ``bin`` directory is taken from ``LASH_TEST_POSTGRES_15``, or from where ``apt-get install postgresql-15`` puts it,
which is done if root runs the tests. Without it the tests are skipped, and fail with ``CI=true``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.debian_programs import install_package

VARIABLE: Final = "LASH_TEST_POSTGRES_15"
_DEBIAN: Final = Path("/usr/lib/postgresql/15/bin")


def find_postgres_15() -> Path:
    """Return the directory of its programs; skip the test if there is none, or fail it with ``CI=true``."""
    found = Path(os.environ.get(VARIABLE, _DEBIAN))
    if found == _DEBIAN:
        install_package("postgresql-15", (_DEBIAN / "postgres").is_file)
    if (found / "postgres").is_file():
        return found
    reason = f"no PostgreSQL 15 in {found}: apt-get install postgresql-15, or set {VARIABLE} to its bin directory"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
