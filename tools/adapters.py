"""Prove the adapters with the frameworks' own tests: ``python -m tools.adapters [FRAMEWORK ...]``.

``make adapters`` runs it. Each framework gets an environment in ``.adapters/`` with the releases that its
``requirements.txt`` pins, and lash from this checkout. There run mypy over the adapter, the tests in
``tests/adapters/FRAMEWORK`` on both databases, and the framework's own suites with the adapter in the place of the
framework's storage. ``suites.toml`` says how many tests must pass, and which are left out because they cannot; a whole
run checks both.

``--latest`` installs the newest releases instead of the pinned ones. ``--sample`` is for CI: of each suite it runs one
of ``parts`` parts, which changes with the commit (`tools.rotation`), and mypy for one framework; it still counts all
tests of each suite.
``--install`` only creates the environments.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from lash.testing.postgres_server import PostgresServer
from tools.adapter_environment import TESTS, Environment
from tools.adapter_suites import Job, jobs_of
from tools.rotation import VARIABLE, part_of, turn_of

T = TypeVar("T")
R = TypeVar("R")

JOBS: Final = 2
"""Suites at a time; one of them uses further processes of its own."""


def main(arguments: list[str]) -> int:
    """Run the named frameworks, by default all; return 1 if something failed or a count is not the expected one."""
    known = sorted(path.parent.name for path in TESTS.glob("*/requirements.txt"))
    options = _parser(known).parse_args(arguments)
    environments = [Environment(name, is_latest=options.latest) for name in options.frameworks or known]
    _in_parallel(environments, Environment.install)
    wrong = [line for lines in _in_parallel(environments, Environment.wrong_versions) for line in lines]
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    for newer in _in_parallel(environments, Environment.newer_releases):
        for line in newer:
            print(f"NEWER RELEASE: {line}", flush=True)
    if options.install:
        return 0
    turn = turn_of() if options.sample else None
    if options.sample:
        print(f"a sample: part {turn} of each suite; {VARIABLE}={turn} repeats it" if turn is not None else "all parts")
    with PostgresServer() as server:
        server.start()
        typed = part_of(environments, turn, len(environments))
        jobs = [job for each in environments for job in jobs_of(each, server.url, turn, with_types=each in typed)]
        # The longest first, so that none is left over at the end.
        jobs.sort(key=lambda job: job.weight, reverse=True)
        failed = [each for each in _in_parallel(jobs, _run) if each]
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    return 1 if failed else 0


def _parser(known: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.adapters", description=__doc__)
    parser.add_argument("--latest", action="store_true", help="install the newest releases, not the pinned ones")
    parser.add_argument("--sample", action="store_true", help="run one part of each suite, as CI does")
    parser.add_argument("--install", action="store_true", help="create the environments and run nothing")
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", choices=[[], *known], help=", ".join(known))
    return parser


def _run(job: Job) -> str | None:
    """Run a job, print its result, and return its name if it failed."""
    began = time.monotonic()
    verdict = job.run()
    if verdict.output:
        print(verdict.output, file=sys.stderr, flush=True)
    print(f"{job.name}: {verdict.summary}, {time.monotonic() - began:.0f} s", flush=True)
    return None if verdict.is_good else job.name


def _in_parallel(items: list[T], work: Callable[[T], R]) -> list[R]:
    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(work, items))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
