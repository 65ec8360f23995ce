"""The content of a wheel is checked before it is installed; ``make wheel`` builds and installs a real one."""

import zipfile
from pathlib import Path

import pytest

from tools.wheel import check_content

WHOLE = (
    "lash/__init__.py",
    "lash/py.typed",
    "lash/sync/__init__.pyi",
    "lash/sqlite/sql/queue.sql",
    "lash/postgres/sql/queue.sql",
    "lash-0.1.dist-info/METADATA",
)


def wheel(directory: Path, *names: str) -> Path:
    path = directory / "lash-0.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def test_a_whole_wheel_passes(tmp_path: Path) -> None:
    """A wheel holds the package with its SQL and types, and the metadata."""
    check_content(wheel(tmp_path, *WHOLE))


@pytest.mark.parametrize("missing", WHOLE[1:5])
def test_a_wheel_without_a_needed_file_is_refused(tmp_path: Path, missing: str) -> None:
    """SQL and types are not Python modules, so a build can lose them and the import still works."""
    with pytest.raises(ValueError, match="misses"):
        check_content(wheel(tmp_path, *(name for name in WHOLE if name != missing)))


def test_a_wheel_that_installs_something_else_is_refused(tmp_path: Path) -> None:
    """A second package at the top would land in the user's site-packages."""
    with pytest.raises(ValueError, match="also installs tests"):
        check_content(wheel(tmp_path, *WHOLE, "tests/conftest.py"))
