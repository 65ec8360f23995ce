"""The environments of the frameworks, in ``.adapters/``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = ROOT / "tests" / "adapters"
HOME: Final = ROOT / ".adapters"
_UV: Final = "uv==0.9.9"
"""Installs an environment in a second of processor time, where pip takes twenty."""
_PIN: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?P<extras>\[[^\]]*\])?==(?P<version>\S+)$", re.MULTILINE)
_installing_uv: Final = threading.Lock()


class Environment:
    """An environment with one framework and lash."""

    def __init__(self, framework: str, *, is_latest: bool) -> None:
        self.framework = framework
        self.tests = TESTS / framework
        self.home = HOME / (f"{framework}-latest" if is_latest else framework)
        self.python = self.home / "bin" / "python"
        self._is_latest = is_latest
        self._unpacking = threading.Lock()

    def install(self) -> None:
        """Create the environment unless it has what ``requirements.txt`` and ``pyproject.toml`` ask for."""
        if not self._is_latest and self.is_installed():
            return
        wanted = self._wanted()
        print(f"{self.framework}: installing ...", flush=True)
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.parent.mkdir(exist_ok=True)
        uv = _uv()
        _run(uv, "venv", "--quiet", "--python", sys.executable, str(self.home))
        (self.home / "wanted.txt").write_text(wanted)
        _run(
            uv, "pip", "install", "--quiet", "--python", str(self.python),
            "--requirement", str(self.home / "wanted.txt"), "--editable", f"{ROOT}[postgres]", "pip",
        )  # fmt: skip
        self._stamp.write_text(self._asked())

    def is_installed(self) -> bool:
        """Return whether the environment has what is asked for."""
        return self._stamp.exists() and self._stamp.read_text() == self._asked()

    def wrong_versions(self) -> list[str]:
        """Return the pinned packages that are installed in another version, or not at all."""
        if self._is_latest:
            return []
        command = [_uv(), "pip", "list", "--quiet", "--format", "json", "--python", str(self.python)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (our own command)
        installed = {each["name"].lower(): each["version"] for each in json.loads(done.stdout)}
        return [
            f"{self.framework}: expected {pin['name']} {pin['version']}, got {found}; remove {self.home}"
            for pin in self._pins()
            if (found := installed.get(pin["name"].lower(), "none")) != pin["version"]
        ]

    def newer_releases(self) -> list[str]:
        """Return the pinned packages of which PyPI has a newer release; a line that says so if it does not answer."""
        if self._is_latest:
            return []
        command = [_uv(), "pip", "list", "--quiet", "--outdated", "--format", "json", "--python", str(self.python)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own command)
        if done.returncode:
            return [f"{self.framework}: unknown, PyPI does not answer: {done.stderr.strip()[-200:]}"]
        pinned = {found["name"].lower(): found["version"] for found in self._pins()}
        outdated = [each for each in json.loads(done.stdout or "[]") if each["name"].lower() in pinned]
        return [
            f"{self.framework}: {each['name']} {each['latest_version']}, tested with {each['version']}; "
            "try it with LATEST=1 make adapters"
            for each in outdated
        ]

    def source(self, package: str, hidden: str | None) -> Path:
        """Return the unpacked source distribution of an installed package, without the package itself.

        ``hidden`` is the directory of the package in it, which must not shadow the installed one. Suites that run at
        the same time share it.
        """
        with self._unpacking:
            return self._unpacked(package, hidden)

    def _unpacked(self, package: str, hidden: str | None) -> Path:
        directory = self.home / "suites" / package
        if directory.exists():
            return directory
        downloads = self.home / "downloads" / package
        _run(
            str(self.python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--no-binary", ":all:", "--dest", str(downloads), f"{package}=={self.version_of(package)}",
        )  # fmt: skip
        (archive,) = downloads.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(downloads, filter="data")
        (unpacked,) = (path for path in downloads.iterdir() if path.is_dir())
        if hidden is not None:
            shutil.rmtree(unpacked / hidden)
        directory.parent.mkdir(parents=True, exist_ok=True)
        unpacked.rename(directory)
        return directory

    def version_of(self, package: str) -> str:
        """Return the installed version of a package."""
        program = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
        command = [str(self.python), "-c", program, package]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 (ours)

    @property
    def _stamp(self) -> Path:
        return self.home / "installed.txt"

    def _wanted(self) -> str:
        wanted = (self.tests / "requirements.txt").read_text()
        return _PIN.sub(r"\g<name>\g<extras>", wanted) if self._is_latest else wanted

    def _asked(self) -> str:
        return f"{self._wanted()}\n{(ROOT / 'pyproject.toml').read_text()}"

    def _pins(self) -> list[re.Match[str]]:
        return list(_PIN.finditer((self.tests / "requirements.txt").read_text()))


def _uv() -> str:
    """Return the program uv: the one on the path, or one of our own below ``.adapters/``."""
    found = shutil.which("uv")
    if found is not None:
        return found
    own = HOME / "uv"
    with _installing_uv:
        if not (own / "bin" / "uv").exists():
            _run(
                sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(own),
                _UV,
            )  # fmt: skip
    return str(own / "bin" / "uv")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)  # noqa: S603 (our own command)
