"""Prove the adapters with the frameworks' own tests: ``python -m tools.adapters [FRAMEWORK ...]``.

``make adapters`` runs it. Each framework gets an environment in ``.adapters/`` with the releases that its
``requirements.txt`` names, and lash from this checkout. There run the tests in ``tests/adapters/FRAMEWORK`` on both
databases, and the framework's own suites with the adapter in the place of the framework's storage. ``suites.toml`` says
how many tests must pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from lash.testing.postgres_server import PostgresServer

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = ROOT / "tests" / "adapters"
HOME: Final = ROOT / ".adapters"
_COUNT: Final = re.compile(r"(\d+) (passed|failed|error|errors|skipped)\b")


class Suite(msgspec.Struct, frozen=True):
    """A suite of a framework. ``hide`` is the directory of its package, which must not shadow the installed one."""

    name: str
    sdist: str
    plugin: str
    arguments: list[str]
    passed: int
    hide: str | None = None
    left_out: dict[str, str] = {}


class Suites(msgspec.Struct, frozen=True):
    suite: list[Suite]


def main(names: list[str]) -> int:
    """Run the named frameworks, by default all; return 1 if a count is not the expected one."""
    known = sorted(path.parent.name for path in TESTS.glob("*/requirements.txt"))
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown framework {unknown[0]!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    failed: list[str] = []
    with PostgresServer() as server:
        server.start()
        for name in names or known:
            failed += _Framework(name, server.url).run()
    for each in failed:
        print(f"failed: {each}", file=sys.stderr)
    return 1 if failed else 0


class _Framework:
    def __init__(self, name: str, postgres_url: str) -> None:
        self._name = name
        self._tests = TESTS / name
        self._home = HOME / name
        self._python = self._home / "bin" / "python"
        self._postgres_url = postgres_url

    def run(self) -> list[str]:
        """Run our tests and the framework's, and return what did not have the expected count."""
        self._install()
        failed = [] if self._run_ours() else [f"{self._name}: our tests"]
        suites = msgspec.convert(tomllib.loads((self._tests / "suites.toml").read_text()), Suites)
        return failed + [f"{self._name}: {each.name}" for each in suites.suite if not self._run_suite(each)]

    def _install(self) -> None:
        wanted = (self._tests / "requirements.txt").read_text()
        stamp = self._home / "installed.txt"
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"{self._name}: installing ...", flush=True)
        shutil.rmtree(self._home, ignore_errors=True)
        requirements = ["--requirement", str(self._tests / "requirements.txt"), "--editable", f"{ROOT}[postgres]"]
        if shutil.which("uv"):
            _run("uv", "venv", "--quiet", "--python", sys.executable, str(self._home))
            _run("uv", "pip", "install", "--quiet", "--python", str(self._python), *requirements, "pip")
        else:
            _run(sys.executable, "-m", "venv", str(self._home))
            _run(str(self._python), "-m", "pip", "install", "--quiet", *requirements)
        stamp.write_text(wanted)

    def _run_ours(self) -> bool:
        command = [str(self._python), "-m", "pytest", "--quiet", "--confcutdir", str(TESTS), str(self._tests)]
        environment = os.environ | {"LASH_ADAPTERS_POSTGRES": self._postgres_url}
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 (our own command)
        self._report("our tests", done, began, None)
        return done.returncode == 0

    def _run_suite(self, suite: Suite) -> bool:
        directory = self._source(suite)
        left_out = [argument for test in suite.left_out for argument in ("--deselect", test)]
        command = [str(self._python), "-m", "pytest", "--quiet", "-p", suite.plugin, *suite.arguments, *left_out]
        environment = os.environ | {"PYTHONPATH": f"{self._tests}{os.pathsep}.", "NO_DOCKER": "true"}
        began = time.monotonic()
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 (our own command)
        return self._report(suite.name, done, began, suite.passed)

    def _report(self, what: str, done: subprocess.CompletedProcess[str], began: float, expected: int | None) -> bool:
        counts = {word: int(count) for count, word in _COUNT.findall(done.stdout.strip().rpartition("\n")[2])}
        is_right = done.returncode == 0 and expected in (None, counts.get("passed"))
        if not is_right:
            print(done.stdout[-20_000:], done.stderr[-4_000:], sep="\n", file=sys.stderr)
        wanted = "" if expected is None else f" of {expected}"
        print(
            f"{self._name}: {what}: {counts.get('passed', 0)}{wanted} passed, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        return is_right

    def _source(self, suite: Suite) -> Path:
        """Return the unpacked source distribution of a suite, without the package that is installed already."""
        directory = self._home / "suites" / suite.sdist.replace("==", "-")
        if not directory.exists():
            downloads = self._home / "downloads" / directory.name
            _run(
                str(self._python), "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
                "--dest", str(downloads), suite.sdist,
            )  # fmt: skip
            (archive,) = downloads.glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(downloads, filter="data")
            (unpacked,) = (path for path in downloads.iterdir() if path.is_dir())
            if suite.hide is not None:
                shutil.rmtree(unpacked / suite.hide)
            directory.parent.mkdir(parents=True, exist_ok=True)
            unpacked.rename(directory)
        return directory


def _run(*command: str) -> None:
    subprocess.run(command, check=True)  # noqa: S603 (our own command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
