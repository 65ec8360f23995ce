"""``import lash`` is cheap: no driver is loaded, and little time is spent."""

import os
import subprocess
import sys
import time

FEWEST_ROUNDS = 7
MOST_ROUNDS = 25
BOUND_SECONDS = 0.075
HEAVY = {"apsw", "asyncpg", "cronsim", "obstore", "sqlite3", "_sqlite3"}


def fresh_interpreter(program: str) -> str:
    """Run a program in an interpreter of its own; coverage and other helpers of this one stay out of it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV_", "COVERAGE"))}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def seconds_for(program: str) -> float:
    before = time.perf_counter()
    fresh_interpreter(program)
    return time.perf_counter() - before


def test_importing_lash_loads_no_driver() -> None:
    """Drivers are imported by the storage that needs them, never by the package."""
    loaded = set(fresh_interpreter("import sys, lash; print('\\n'.join(sys.modules))").split())
    assert "lash.connect" in loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
    assert {name for name in loaded if name.startswith(("lash.sqlite", "lash.postgres", "lash.testing"))} == set()


def test_importing_lash_costs_less_than_75_milliseconds() -> None:
    """The best of several fresh processes of each kind, run in turn; a busy machine gets more tries, not more time."""
    fresh_interpreter("import lash")
    bare: list[float] = []
    with_lash: list[float] = []
    cost = BOUND_SECONDS
    while len(bare) < FEWEST_ROUNDS or (cost >= BOUND_SECONDS and len(bare) < MOST_ROUNDS):
        bare.append(seconds_for("pass"))
        with_lash.append(seconds_for("import lash"))
        cost = min(with_lash) - min(bare)
    print(f"import lash costs {cost * 1000:.0f} ms over {min(bare) * 1000:.0f} ms")  # noqa: T201 - a figure to see
    assert cost < BOUND_SECONDS
