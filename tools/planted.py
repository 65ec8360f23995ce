"""Planted bugs: each check has caught one, and still does. ``python -m tools.planted``, as ``make planted`` does.

A file ``tests/proof/planted/<area>-<slug>.patch`` begins with two lines, ``Bug: …`` (one sentence) and ``Check: …``
(a pytest node id, or a command), and goes on with what ``git diff`` said. For each one the tree is copied, the bug
is planted in the copy, and the check must fail there. Nothing is changed in the tree itself.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = "tests/proof/planted"
_HEADER: Final = re.compile(r"Bug: (?P<bug>\S[^\n]*)\nCheck: (?P<check>\S[^\n]*)\n\n?(?=diff --git )")
_TARGET: Final = re.compile(r"(?m)^diff --git a/(?P<path>\S+) ")
_COMMAND: Final = re.compile(r"(?:python|make|env|[A-Z_]+=\S*) ")
_PYTEST_RAN_AND_FAILED: Final = 1
_OUTPUT_KEPT: Final = 4_000


class Planted(msgspec.Struct, frozen=True):
    """One planted bug: what it breaks, and which check must notice."""

    name: str
    bug: str
    check: str
    paths: tuple[str, ...]


class Result(msgspec.Struct, frozen=True):
    """What became of one: ``caught``, ``missed``, ``does not apply``, ``no end`` or ``broken`` (no test ran)."""

    name: str
    bug: str
    check: str
    verdict: str
    seconds: float
    output: str

    @property
    def good(self) -> bool:
        return self.verdict == "caught"


def read_patch(path: Path) -> Planted:
    """Read the two lines above the difference; ValueError says what is wrong with the file."""
    text = path.read_text(encoding="utf-8")
    header = _HEADER.match(text)
    if header is None:
        raise ValueError(f"{path.name}: it begins with a line 'Bug: …', a line 'Check: …', and then what git diff says")
    paths = tuple(_TARGET.findall(text))
    if not all(name.startswith("src/") for name in paths):
        raise ValueError(f"{path.name}: a bug is planted in src/, not in {', '.join(paths)}")
    return Planted(name=path.stem, bug=header["bug"], check=header["check"], paths=paths)


def patches(root: Path) -> list[Path]:
    """Return the files, by name."""
    return sorted((root / FOLDER).glob("*.patch"))


def applies(root: Path, path: Path) -> str | None:
    """Return what git says against applying the file to the tree, None if nothing."""
    command = ["git", "apply", "--check", str(path.resolve())]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603 (our own words)
    return done.stderr.strip() or f"git says {done.returncode}" if done.returncode else None


def try_patch(root: Path, path: Path, *, seconds: float) -> Result:
    """Plant the bug in a copy of the tree and run its check there."""
    planted = read_patch(path)
    started = time.monotonic()
    objection = applies(root, path)
    if objection is not None:
        verdict, output = "does not apply", objection
    else:
        with tempfile.TemporaryDirectory(prefix="planted-") as folder:
            copy = Path(folder) / "tree"
            copy_tree(root, copy)
            subprocess.run(["git", "apply", str(path.resolve())], cwd=copy, check=True)  # noqa: S603, S607 (as above)
            verdict, output = _run_check(planted, copy, seconds)
    return Result(planted.name, planted.bug, planted.check, verdict, round(time.monotonic() - started, 1), output)


def copy_tree(root: Path, copy: Path) -> None:
    """Copy what git knows and what it would add, as it lies in the tree."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=root, capture_output=True, check=True).stdout  # noqa: S603 (our own words)
    for name in filter(None, listed.decode().split("\0")):
        if (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)
    # A repository of its own, so that git apply does not take the copy for a part of another one.
    subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)  # noqa: S607 (git is on the path)


def command_of(check: str) -> list[str]:
    """Return the command that a check stands for; words that are no command are node ids for pytest."""
    if _COMMAND.match(check):
        return ["bash", "-c", check]
    return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *shlex.split(check)]


def _run_check(planted: Planted, copy: Path, seconds: float) -> tuple[str, str]:
    # The interpreter stands first on the path, so that a command's "python" is this one.
    binaries = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}:{copy}", "PATH": binaries}
    # Whether a machine fails is asked here, not with which smallest example, which takes it minutes to find.
    environment["LASH_MODEL_SHRINK"] = "0"
    command = command_of(planted.check)
    with subprocess.Popen(  # noqa: S603 (the patches of this repository name it)
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # The whole group goes. It may as well be the machine that is slow, so this counts as not caught.
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return "no end", f"after {seconds:g} s\n{output[-_OUTPUT_KEPT:]}"
    return _verdict(command, process.returncode), output[-_OUTPUT_KEPT:]


def _verdict(command: Sequence[str], status: int) -> str:
    if status == 0:
        return "missed"
    if "pytest" in command and status != _PYTEST_RAN_AND_FAILED:
        # Nothing was collected, or pytest was misused: no test has noticed anything.
        return "broken"
    return "caught"


def _chosen(root: Path, words: Sequence[str]) -> list[Path]:
    return [path for path in patches(root) if not words or any(word in path.stem for word in words)]


def _results(root: Path, words: Sequence[str], seconds: float) -> Iterator[Result]:
    for path in _chosen(root, words):
        yield try_patch(root, path, seconds=seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try every planted bug, or those whose names contain one of the words; 1 if one was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tools.planted", description=main.__doc__)
    parser.add_argument("words", nargs="*", help="only files whose names contain one of these")
    parser.add_argument("--json", action="store_true", help="one JSON object for each, with the output of its check")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long one check may take (300)")
    options = parser.parse_args(arguments)
    results: list[Result] = []
    for result in _results(Path.cwd(), options.words, options.seconds):
        results.append(result)
        print(msgspec.json.encode(result).decode() if options.json else _row(result), flush=True)
    if not options.json:
        caught = sum(result.good for result in results)
        print(f"{len(results)} planted bugs, {caught} caught")
    return 0 if results and all(result.good for result in results) else 1


def _row(result: Result) -> str:
    row = f"{result.verdict:14} {result.seconds:6.1f} s  {result.name}: {result.bug}\n{'':25}{result.check}"
    return row if result.good else f"{row}\n{result.output}"


if __name__ == "__main__":
    sys.exit(main())
