"""Programs of Debian packages that tests run as real peers, such as pgbouncer and Prometheus.

A program is taken from a variable that names it, from ``PATH``, or from its package, which is unpacked below this
environment's directory: nothing is installed, and root is not needed. Browsers and database servers are too many files
for that, and are installed if root runs the tests. Where none of these works, the test is skipped, and fails with
``CI=true``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/bin"
_DOWNLOAD_S: Final = 300.0


def find_program(package: str, place: str, variable: str) -> Path:
    """Return the program of a package, which has it at a place; skip or fail the test if there is none."""
    named, name = os.environ.get(variable), Path(place).name
    if named:
        return Path(named)
    on_path = shutil.which(name) or shutil.which(name, path=_SYSTEM_PATH)
    if on_path is not None:
        return Path(on_path)
    try:
        return _unpacked(package, place)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or ""
        reason = f"no {name}: set {variable}, install {package}, or let apt-get download it: {error} {said}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def install_package(package: str, is_there: Callable[[], bool]) -> bool:
    """Install a package of many files, if root may; one process at a time. Return whether it is there afterwards."""
    if is_there() or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return is_there()
    with (Path(tempfile.gettempdir()) / f"lash-{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "--yes", "--no-install-recommends", "-qq", package]
        for command in (install, ["apt-get", "update", "-qq"], install):
            if is_there():
                break
            subprocess.run(command, env=environment, capture_output=True, timeout=_DOWNLOAD_S, check=False)
    return is_there()


def libraries_of(program: Path) -> Path:
    """Return the directory of the libraries that were unpacked beside the program."""
    return program.parent / "lib"


def _unpacked(package: str, place: str) -> Path:
    """Return the program of the package, downloaded once for each environment."""
    directory = Path(sys.prefix) / package
    directory.mkdir(exist_ok=True)
    program = directory / Path(place).name
    with (directory / "lock").open("w") as lock:
        # Processes of one test run must not unpack at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory() as scratch:
                _download(package, Path(scratch))
                shutil.rmtree(libraries_of(program), ignore_errors=True)
                libraries_of(program).mkdir()
                for library in Path(scratch, "root").rglob("lib*.so.*"):
                    shutil.copy(library, libraries_of(program) / library.name)
                shutil.copy(Path(scratch, "root", place), directory / "partial")
                (directory / "partial").rename(program)
    return program


def _download(package: str, scratch: Path) -> None:
    """Download and unpack the package and the libraries that this machine lacks."""
    lists: list[str] = []
    try:
        _run(["apt-get", "download", package], scratch)
    except subprocess.CalledProcessError:
        # A new machine has no package lists. Ours are kept apart, so that root is not needed.
        lists = ["-o", f"Dir::State={scratch / 'state'}", "-o", f"Dir::Cache={scratch / 'cache'}"]
        lists += ["-o", "APT::Sandbox::User=", "-o", "Dir::State::status=/var/lib/dpkg/status"]
        for part in ("state/lists/partial", "cache/archives/partial"):
            (scratch / part).mkdir(parents=True)
        _run(["apt-get", *lists, "update"], scratch)
        _run(["apt-get", *lists, "download", package], scratch)
    lines = _run(["apt-cache", *lists, "depends", "--important", package], scratch).splitlines()
    depends = {line.partition("Depends: ")[2] for line in lines}
    libraries = sorted(name for name in depends if name.startswith("lib") and not _is_installed(name))
    if libraries:
        _run(["apt-get", *lists, "download", *libraries], scratch)
    for downloaded in scratch.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(downloaded), str(scratch / "root")], scratch)


def _is_installed(package: str) -> bool:
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout == "installed"


def _run(command: Sequence[str], directory: Path) -> str:
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=_DOWNLOAD_S,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout
