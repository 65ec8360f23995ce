"""What runs in the environment of a framework: mypy, our tests, and the framework's own suites."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tools.adapter_environment import HOME, ROOT, TESTS, Environment

_COUNT: Final = re.compile(r"(\d+) (passed|failed|error|errors|skipped)\b")
_SUMMARY: Final = re.compile(r"\d+ (?:passed|failed|errors?|skipped)\b.* in [\d.]+s")
_SHOWN: Final = 20_000


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A suite of a framework.

    ``sdist`` is the package whose source distribution has it, in the installed version, and ``hide`` the directory of
    the package in it, which must not shadow the installed one.
    ``passed`` is how many tests pass, ``skipped`` how many of the others skip themselves. ``left_out`` are tests that
    cannot pass, with the reason; a whole run checks that they still fail. A sample runs one of ``parts`` parts.
    ``processes`` run the whole suite; a sample is too short for more than one.
    A suite ``on_postgres`` runs a second time, except in a sample: its plugin uses the server of
    ``LASH_ADAPTERS_POSTGRES``.
    """

    name: str
    sdist: str
    plugin: str
    arguments: list[str]
    passed: int
    skipped: int = 0
    parts: int = 1
    processes: int = 1
    on_postgres: bool = False
    hide: str | None = None
    left_out: dict[str, str] = {}


class Suites(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file ``suites.toml``."""

    suite: list[Suite] = []


class Done(NamedTuple):
    """A program that has ended."""

    code: int
    output: str
    processor_s: float


class Verdict(NamedTuple):
    """The result of a job; ``output`` is empty if it is good."""

    is_good: bool
    summary: str
    output: str


class Job(NamedTuple):
    """Something to run; a larger ``weight`` takes longer."""

    name: str
    weight: int
    run: Callable[[], Verdict]


def jobs_of(environment: Environment, postgres_url: str, turn: int | None, *, with_types: bool) -> Iterator[Job]:
    """Return what to run for a framework. A turn selects one part of each suite."""
    name = environment.framework
    suites = msgspec.convert(tomllib.loads((environment.tests / "suites.toml").read_text()), Suites).suite
    yield Job(f"{name}: our tests", 300, partial(_run_ours, environment, postgres_url))
    if with_types:
        yield Job(f"{name}: mypy", 200, partial(_run_mypy, environment))
    for suite in suites:
        weight = suite.passed // (1 if turn is None else suite.parts)
        yield Job(f"{name}: {suite.name}", weight, partial(_run_suite, environment, suite, turn, {}))
        if suite.on_postgres and turn is None:
            server = {"LASH_ADAPTERS_POSTGRES": postgres_url}
            yield Job(
                f"{name}: {suite.name}, PostgreSQL", weight, partial(_run_suite, environment, suite, None, server)
            )
        if suite.left_out and turn is None:
            yield Job(f"{name}: {suite.name}, left out", 100, partial(_run_left_out, environment, suite))


def _run_ours(environment: Environment, postgres_url: str) -> Verdict:
    command = [str(environment.python), "-m", "pytest", "--quiet", "--confcutdir", str(TESTS), str(environment.tests)]
    done = _done(command, ROOT, {"LASH_ADAPTERS_POSTGRES": postgres_url})
    counts = _counts(done.output)
    return _verdict(done, f"{counts.get('passed', 0)} passed", is_good=done.code == 0)


def _run_mypy(environment: Environment) -> Verdict:
    """Check the adapter with the types of the framework, and without the exceptions for a missing framework."""
    config: dict[str, Any] = dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"])
    path = HOME / f"mypy-{environment.framework}.ini"
    kept = {name: value for name, value in config.items() if name not in ("overrides", "files", "exclude")}
    kept["mypy_path"] = [str(ROOT / each) for each in kept["mypy_path"]]
    path.write_text("[mypy]\n" + "".join(f"{name} = {_ini(value)}\n" for name, value in kept.items()))
    adapter = ROOT / "src" / "lash" / "adapters" / environment.framework
    command = [
        sys.executable, "-m", "mypy", "--config-file", str(path), "--python-executable", str(environment.python),
        "--cache-dir", str(environment.home / ".mypy_cache"), str(adapter if adapter.is_dir() else f"{adapter}.py"),
    ]  # fmt: skip
    done = _done(command, ROOT, {})
    return _verdict(done, done.output.strip().rpartition("\n")[2], is_good=done.code == 0)


def _run_suite(environment: Environment, suite: Suite, turn: int | None, server: Mapping[str, str]) -> Verdict:
    part = "0/1" if turn is None else f"{turn % suite.parts}/{suite.parts}"
    arguments = [*suite.arguments, *(argument for test in suite.left_out for argument in ("--deselect", test))]
    if suite.processes > 1 and (turn is None or suite.parts == 1):
        arguments += ["--numprocesses", str(suite.processes)]
    done, found, chosen = _run_tests(environment, suite, arguments, part, server)
    return judged(done, suite, found, chosen)


def _run_left_out(environment: Environment, suite: Suite) -> Verdict:
    done, found, _ = _run_tests(environment, suite, [*suite.left_out, *options_of(suite)], "0/1", {})
    return judged_left_out(done, suite, found)


def options_of(suite: Suite) -> list[str]:
    """Return the options of a suite without what selects tests: their files, which come first, and ``-k``."""
    first = next((place for place, each in enumerate(suite.arguments) if each.startswith("-")), len(suite.arguments))
    options = suite.arguments[first:]
    if "-k" in options:
        del options[(place := options.index("-k")) : place + 2]
    return options


def _run_tests(
    environment: Environment, suite: Suite, arguments: list[str], part: str, server: Mapping[str, str]
) -> tuple[Done, int, int]:
    """Run tests of a suite, and return how many there are and how many were chosen."""
    directory = environment.source(suite.sdist.partition("==")[0], suite.hide)
    command = [str(environment.python), "-m", "pytest", "--quiet", "-p", suite.plugin, "-p", "part_plugin", *arguments]
    with tempfile.TemporaryDirectory() as here:
        count = Path(here) / "count.json"
        variables = {
            "PYTHONPATH": os.pathsep.join((str(environment.tests), str(TESTS), ".")),
            "NO_DOCKER": "true",
            "LASH_ADAPTERS_PART": part,
            "LASH_ADAPTERS_COUNT": str(count),
            **server,
        }
        done = _done(command, directory, variables)
        found = json.loads(count.read_text()) if count.exists() else {"all": 0, "chosen": 0}
    return done, found["all"], found["chosen"]


def judged(done: Done, suite: Suite, found: int, chosen: int) -> Verdict:
    """Return the verdict on a suite: every chosen test passed or skipped, and the suite has as many as expected."""
    counts = _counts(done.output)
    passed = counts.get("passed", 0)
    is_whole = chosen == found
    is_good = (
        done.code == 0
        and found == suite.passed + suite.skipped
        and passed >= chosen - suite.skipped
        and (not is_whole or passed == suite.passed)
    )
    summary = f"{passed} of {chosen} passed" + ("" if is_whole else f", a part of {found}")
    if found != suite.passed + suite.skipped:
        summary += f"; THE SUITE HAS {found} TESTS, suites.toml says {suite.passed + suite.skipped}"
    return _verdict(done, summary, is_good=is_good)


def judged_left_out(done: Done, suite: Suite, found: int) -> Verdict:
    """Return the verdict on the tests that are left out: each exists, and none passes."""
    counts = _counts(done.output)
    is_good = found >= len(suite.left_out) and not counts.get("passed") and not counts.get("skipped")
    summary = f"{found - counts.get('passed', 0) - counts.get('skipped', 0)} of {found} fail"
    if not is_good:
        summary += "; REMOVE FROM left_out WHAT PASSES OR NO LONGER EXISTS"
    return _verdict(done, summary, is_good=is_good)


def _done(command: list[str], directory: Path, variables: Mapping[str, str]) -> Done:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(variables)
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=output, stderr=output)  # noqa: S603 (ours)
        # The times of this process and its children; another job may run meanwhile.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return Done(process.returncode, output.read(), used.ru_utime + used.ru_stime)


def _verdict(done: Done, summary: str, *, is_good: bool) -> Verdict:
    return Verdict(
        is_good, f"{summary}, {done.processor_s:.0f} s of processor time", "" if is_good else done.output[-_SHOWN:]
    )


def _counts(output: str) -> dict[str, int]:
    """Return the counts of the last summary of pytest."""
    summaries = [line for line in output.splitlines() if _SUMMARY.search(line)]
    return {word: int(count) for count, word in _COUNT.findall(summaries[-1] if summaries else "")}


def _ini(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
