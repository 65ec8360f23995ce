"""Planted bugs: each check has caught one, and still does. ``python -m tools.planted``, as ``make planted`` does.

A file ``tests/proof/planted/<area>-<slug>.toml`` says in one sentence what is broken (``bug``), which pytest node ids
or command must notice (``check``), and which text to exchange (``[[edit]]``: ``file``, ``find``, ``replace``; the text
to find occurs exactly once in the file). The bug is planted in a copy of the tree, and the check must fail there.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec

from tools.rotation import part_of, turn_of

DIRECTORY: Final = "tests/proof/planted"
_COMMAND: Final = re.compile(r"(?:python|make|env|[A-Z_]+=\S*) ")
_DIRECTORY_OF_TESTS: Final = re.compile(r"tests/(?:proof/)?[a-z]+(?=/)")
_PYTEST_RAN_AND_FAILED: Final = 1
_OUTPUT_KEPT: Final = 4_000
_SAMPLE_PARTS: Final = 2
"""CI plants one of two halves of the sample for each commit."""


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One exchange of text. ``find`` occurs exactly once in the file when the edits before it are made."""

    file: Annotated[str, msgspec.Meta(pattern="^src/")]
    find: Annotated[str, msgspec.Meta(min_length=1)]
    replace: str


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bug: Annotated[str, msgspec.Meta(pattern=r"^\S")]
    check: Annotated[str, msgspec.Meta(pattern=r"^\S")]
    edit: Annotated[tuple[Edit, ...], msgspec.Meta(min_length=1)]


class Planted(msgspec.Struct, frozen=True):
    """One planted bug: what it breaks, which check must notice, and the edits that plant it."""

    name: str
    bug: str
    check: str
    edits: tuple[Edit, ...]


class Result(msgspec.Struct, frozen=True):
    """The verdict on one bug.

    ``caught``, ``missed``, ``does not apply``, ``no end`` (of the check), ``broken`` (no test ran), or ``red anyway``
    (the check fails without the bug).
    """

    name: str
    bug: str
    check: str
    verdict: str
    seconds: float
    output: str

    @property
    def good(self) -> bool:
        return self.verdict == "caught"


class DoesNotApply(Exception):
    """The text that an edit is to replace does not occur exactly once."""


def read_bugs(root: Path, words: Sequence[str] = ()) -> list[Planted]:
    """Return the planted bugs by name: all, or those whose names contain one of the words."""
    paths = sorted((root / DIRECTORY).glob("*.toml"))
    return [read_bug(path) for path in paths if not words or any(word in path.stem for word in words)]


def read_bug(path: Path) -> Planted:
    """Read one file; ValueError says what is wrong with it."""
    try:
        document = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _Document)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path.name}: {error}") from error
    return Planted(name=path.stem, bug=document.bug, check=document.check, edits=document.edit)


def edited(root: Path, planted: Planted) -> dict[str, str]:
    """Return the files with the bug in them, by path; raise DoesNotApply if one does not fit the tree."""
    texts: dict[str, str] = {}
    for edit in planted.edits:
        path = root / edit.file
        if edit.file not in texts and not path.is_file():
            raise DoesNotApply(f"{edit.file} does not exist")
        text = texts.get(edit.file) or path.read_text(encoding="utf-8")
        times = text.count(edit.find)
        if times != 1:
            raise DoesNotApply(f"{edit.file}: expected the text once, found it {times} times:\n{edit.find}")
        texts[edit.file] = text.replace(edit.find, edit.replace)
    return texts


def try_bug(root: Path, planted: Planted, *, seconds: float) -> Result:
    """Plant the bug in a copy of the tree and run its check there."""
    started = time.monotonic()
    try:
        texts = edited(root, planted)
    except DoesNotApply as objection:
        verdict, output = "does not apply", str(objection)
    else:
        with _copy_of(root) as copy:
            for name, text in texts.items():
                (copy / name).write_text(text, encoding="utf-8")
            verdict, output = _run_check(planted.check, copy, seconds)
    return Result(planted.name, planted.bug, planted.check, verdict, round(time.monotonic() - started, 1), output)


@contextmanager
def _copy_of(root: Path) -> Iterator[Path]:
    """Copy the files that git tracks or would add, as they are in the tree, with their compiled modules.

    A compiled module is valid as long as its source has the same time and size, which a copy has and an edit has not.
    """
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=root, capture_output=True, check=True).stdout  # noqa: S603 (our own words)
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        copy = Path(directory) / "tree"
        for name in filter(None, listed.decode().split("\0")):
            if (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
        for compiled in (each for top in ("src", "tests", "tools") for each in (root / top).rglob("__pycache__")):
            target = copy / compiled.relative_to(root)
            if target.parent.is_dir():
                shutil.copytree(compiled, target)
        yield copy


def command_of(check: str) -> list[str]:
    """Return the command of a check; words that do not begin like a command are arguments of pytest."""
    if _COMMAND.match(check):
        return ["bash", "-c", check]
    return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *shlex.split(check)]


def _run_check(check: str, copy: Path, seconds: float) -> tuple[str, str]:
    # The interpreter comes first on the path, so that the "python" of a command is this one.
    binaries = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}:{copy}", "PATH": binaries}
    # That a state machine fails is enough; finding the smallest failing example takes minutes.
    environment["LASH_MODEL_SHRINK"] = "0"
    command = command_of(check)
    with subprocess.Popen(  # noqa: S603 (the files of this repository name it)
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
            # Kill the whole group. The machine may just be slow, so this does not count as caught.
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return "no end", f"after {seconds:g} s\n{output[-_OUTPUT_KEPT:]}"
    return _verdict(command, process.returncode), output[-_OUTPUT_KEPT:]


def _verdict(command: Sequence[str], status: int) -> str:
    if status == 0:
        return "missed"
    if "pytest" in command and status != _PYTEST_RAN_AND_FAILED:
        # No test was collected, or pytest was called wrongly: no test has noticed anything.
        return "broken"
    return "caught"


def one_of_each_kind(planted: Sequence[Planted]) -> list[Planted]:
    """Return the first bug of each kind of check, in the order of their names."""
    chosen = {kind_of(each.check): each for each in reversed(planted)}
    return sorted(chosen.values(), key=lambda each: each.name)


def kind_of(check: str) -> str:
    """Return the kind of a check: ``tests/engine``, ``tests/proof/model``; a command without tests is its own kind."""
    directory = _DIRECTORY_OF_TESTS.search(check)
    return check if directory is None else directory[0]


def red_checks(root: Path, planted: Sequence[Planted], *, seconds: float) -> dict[str, str]:
    """Run each distinct check without a bug; return the output of each failing one, by check."""
    red: dict[str, str] = {}
    with _copy_of(root) as copy:
        for check in sorted({each.check for each in planted}):
            verdict, output = _run_check(check, copy, seconds)
            if verdict != "missed":
                red[check] = output
    return red


def _results(root: Path, planted: Sequence[Planted], *, seconds: float, verify: bool, jobs: int) -> Iterator[Result]:
    red = red_checks(root, planted, seconds=seconds) if verify else {}

    def result(each: Planted) -> Result:
        if each.check in red:
            return Result(each.name, each.bug, each.check, "red anyway", 0.0, red[each.check])
        return try_bug(root, each, seconds=seconds)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(result, planted)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try every planted bug, or the ones whose names contain a given word; 1 if one was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tools.planted", description=main.__doc__)
    parser.add_argument("words", nargs="*", help="only files whose names contain one of these")
    parser.add_argument("--json", action="store_true", help="one JSON object for each, with the output of its check")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one check (300)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="checks at a time (one for each core)")
    parser.add_argument("--sample", action="store_true", help="only the first bug of each kind of check")
    parser.add_argument("--verify-checks", action="store_true", help="first run each check without a bug: it must pass")
    options = parser.parse_args(arguments)
    root = Path.cwd()
    results: list[Result] = []
    bugs = read_bugs(root, options.words)
    if options.sample:
        bugs = part_of(one_of_each_kind(bugs), turn_of(), _SAMPLE_PARTS)
    for result in _results(root, bugs, seconds=options.seconds, verify=options.verify_checks, jobs=options.jobs):
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
