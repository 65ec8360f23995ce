"""``import lash`` is cheap: no driver is loaded, and little else."""

import os
import subprocess
import sys

MOST_OWN = 20
MOST_MODULES = 110
"""What there was when this was written (16 and 82, 47 ms of CPU), and a little room for other versions of Python."""
HEAVY = {"apsw", "asyncpg", "cronsim", "obstore", "sqlite3", "_sqlite3"}


def fresh_interpreter(program: str) -> str:
    """Run a program in an interpreter of its own; coverage and other helpers of this one stay out of it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV_", "COVERAGE"))}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def test_importing_lash_loads_no_driver() -> None:
    """Drivers are imported by the storage that needs them, never by the package."""
    loaded = set(fresh_interpreter("import sys, lash; print('\\n'.join(sys.modules))").split())
    assert "lash.connect" in loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()
    assert {name for name in loaded if name.startswith(("lash.sqlite", "lash.postgres", "lash.testing"))} == set()


def test_importing_lash_loads_few_modules() -> None:
    """What an import costs follows from how much it loads; the benchmark ``import-time`` says how long that takes."""
    program = "import sys; before = set(sys.modules); import lash; print('\\n'.join(set(sys.modules) - before))"
    loaded = fresh_interpreter(program).split()
    assert len([name for name in loaded if name.partition(".")[0] == "lash"]) <= MOST_OWN
    assert len(loaded) <= MOST_MODULES
