"""The command starts quickly because it loads only what it needs: the set of modules is checked, not the time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.kit import environment, run

DRIVERS = {"apsw", "asyncpg", "obstore", "cronsim", "jsonschema_rs"}

HEAVY = {"email", "http", "multiprocessing", "rich", "sqlite3", "unittest", "xml", "zipfile"}
"""Third-party modules that load slowly and that no common command needs."""

STORES = ("lash.sqlite", "lash.postgres", "lash.runtime", "lash.plan", "lash.stores")


def loaded(*arguments: str, url: str = "") -> set[str]:
    """Return the modules that are loaded once the command has run."""
    program = (
        f"import sys\nfrom lash.cli.main import main\nmain({list(arguments)!r})\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    variables = environment({"LASH_URL": url} if url else {})
    ended = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    return set(ended.stderr.split())


def test_help_and_completion_load_no_driver_and_no_event_loop() -> None:
    """Commands without a storage load none of its modules."""
    for arguments in (("--help",), ("sessions", "--help"), ("ps", "--help"), ("--version",), ("completion", "bash")):
        modules = loaded(*arguments)
        assert "lash.cli.root" in modules
        tops = {name.partition(".")[0] for name in modules}
        assert tops & {*DRIVERS, *HEAVY, "asyncio", "msgspec", "ssl", "logging"} == set(), arguments
        assert {name for name in modules if name.startswith(STORES)} == set(), arguments


def test_a_command_loads_itself_and_its_backend_only(tmp_path: Path) -> None:
    """``lash ps`` on SQLite loads neither the other backend nor the runtime nor other commands."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    assert run("init", url=url).returncode == 0
    modules = loaded("ps", url=url)
    assert "lash.sqlite.storage" in modules
    unwanted = ("lash.postgres", "lash.runtime", "lash.testing", "lash.transfer", "lash.demo")
    assert {name for name in modules if name.startswith(unwanted)} == set()
    assert {name.partition(".")[0] for name in modules} & {*HEAVY, *DRIVERS - {"apsw"}} == set()
    commands = {name for name in modules if name.startswith("lash.cli.")}
    assert commands & {f"lash.cli.{name}" for name in ("session", "maintenance", "doctor", "worker", "backup")} == set()
