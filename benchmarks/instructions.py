"""How many instructions a turn takes in this process, counted by valgrind: the same on every machine and under load.

Run with ``python -m benchmarks.instructions [--count N] [--source DIRECTORY] [--json]``. A child process runs some
turns under ``valgrind --tool=cachegrind``, and another one runs more of them; the difference is divided by their
number. So neither the start of Python nor the opening of the storage is counted. ``--source`` measures the ``src`` of
another checkout. A *turn* is a message and what runs it, without a worker; an *ask* is a message to the application's
own worker and the wait for its reply, and includes what the worker does beside it.

Under valgrind the child runs about fifty times slower, so its clocks do too: a commit of SQLite would seem to take so
long that the storage writes on its thread, which turns on a machine do not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lash
from lash.testing.postgres_server import PostgresServer

_WARM_UP = 20
_SLOWER = 50
"""How many times slower a process is under valgrind, about."""
_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
_MESSAGE = "the quick brown fox jumps over the lazy dog " * 5
_REPLY = _MESSAGE * 5
_ASK = "ask"
_KINDS = ("turn", _ASK)


def _slow_clocks() -> None:
    """Let the clocks that intervals are measured with run as slowly as this process."""

    def slowed(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() / _SLOWER

    time.monotonic, time.perf_counter = slowed(time.monotonic), slowed(time.perf_counter)


async def _turns(url: str, count: int, *, worker: bool) -> None:
    """Send messages to an agent that replies at once, and run each turn in this process."""
    app = lash.App(url, worker=worker)

    @app.agent
    async def answering(turn: lash.Turn) -> str:  # noqa: ARG001 (its signature is that of an agent)
        return _REPLY

    async with app:
        session = app.session("s", agent=answering)
        for number in range(count):
            text = f"{number} {_MESSAGE}"
            if worker:
                await session.ask(text, key=str(number))
            else:
                await session.send(text, key=str(number))
                await app.drain()


def _counted(url: str, turns: int, source: Path, kind: str) -> int:
    """Return the instructions of a child process that runs so many turns."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, __file__, "--child", url, "--count", str(turns), "--kind", kind]
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(source)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = _COUNTED.search(ran.stderr)
    if ran.returncode or found is None:
        raise RuntimeError(f"valgrind ended with {ran.returncode}: {ran.stderr[-2_000:]}")
    return int(found[1].replace(",", ""))


def instructions_of_turn(urls: tuple[str, str], count: int, source: Path, kind: str) -> int:
    """Return the mean instructions of a turn of a kind, from two empty databases."""
    counts = (_WARM_UP, _WARM_UP + count)
    few, many = (_counted(url, turns, source, kind) for url, turns in zip(urls, counts, strict=True))
    return round((many - few) / count)


def _compile(source: Path) -> None:
    """Let Python store the compiled modules of a checkout: the first child would compile them."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(source)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="turns that are counted")
    parser.add_argument("--source", type=Path, default=Path(lash.__file__).parents[1], help="the directory of lash")
    parser.add_argument("--only", choices=("sqlite", "postgres"), help="one backend")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--kind", choices=_KINDS, help="one kind of turn")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _slow_clocks()
        asyncio.run(_turns(options.child, options.count, worker=options.kind == _ASK))
        return
    _compile(options.source)
    found: dict[str, int] = {}
    for kind in _KINDS if options.kind is None else (options.kind,):
        if options.only != "postgres":
            with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
                urls = (f"sqlite:///{directory}/few.db", f"sqlite:///{directory}/many.db")
                found[f"sqlite {kind}"] = instructions_of_turn(urls, options.count, options.source, kind)
        if options.only != "sqlite":
            with PostgresServer() as few, PostgresServer() as many:
                urls = few.url, many.url
                found[f"postgres {kind}"] = instructions_of_turn(urls, options.count, options.source, kind)
    if options.json:
        print(json.dumps(found))
        return
    for name, number in found.items():
        print(f"{name:16}{number:14,}")


if __name__ == "__main__":
    main()
