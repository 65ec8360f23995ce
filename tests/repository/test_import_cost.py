"""``import lash`` is cheap because it loads almost nothing: the set of modules is checked, not the time."""

import os
import subprocess
import sys

LOADED = {"lash"}
HEAVY = {"apsw", "asyncio", "asyncpg", "click", "cronsim", "jsonschema_rs", "msgspec", "obstore", "sqlite3", "_sqlite3"}


def loaded_by(program: str) -> set[str]:
    """Return the modules that a program loads in a separate interpreter, without the helpers of this one."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV_", "COVERAGE"))}
    command = [sys.executable, "-c", f"{program}; import sys; print('\\n'.join(sys.modules))"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split())


def test_importing_lash_loads_nothing_else() -> None:
    """Every name is imported when it is first used."""
    loaded = loaded_by("import lash")
    assert {name for name in loaded if name.partition(".")[0] == "lash"} == LOADED
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()


def test_opening_a_storage_loads_no_driver_before_it_is_needed() -> None:
    """Drivers are imported by the storage that needs them."""
    loaded = loaded_by("import lash; lash.open")
    assert "lash.connect.open" in loaded
    assert {name.partition(".")[0] for name in loaded} & (HEAVY - {"msgspec"}) == set()
    assert {name for name in loaded if name.startswith(("lash.sqlite", "lash.postgres", "lash.testing"))} == set()
