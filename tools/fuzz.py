"""The long form of ``tests/proof/fuzz``: rounds with new seeds until the time is over, ``make fuzz MINUTES=n``."""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence

EXAMPLES = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rounds until the time is over or one fails; the last line of a failed one says how to repeat it."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description="Fuzz everything that parses.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on; a round is finished (10)")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help=f"inputs for each test and round ({EXAMPLES})")
    options, rest = parser.parse_known_args(arguments)
    end = time.monotonic() + options.minutes * 60
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        rounds += 1
        seed = secrets.randbelow(2**32)
        variables = {"LASH_FUZZ_EXAMPLES": str(options.examples)}
        command = [
            "-m",
            "pytest",
            "-q",
            "-x",
            "--timeout=1200",
            f"--hypothesis-seed={seed}",
            *(rest or ["tests/proof/fuzz"]),
        ]
        done = subprocess.run([sys.executable, *command], env={**os.environ, **variables}, check=False)  # noqa: S603
        if done.returncode:
            print(f"round {rounds} failed; again: LASH_FUZZ_EXAMPLES={options.examples} python {' '.join(command)}")
            return 1
    print(f"{rounds} rounds of {options.examples} inputs for each test, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
