"""A shell in which the commands of a page are typed.

What a command means is what it means for the reader, with these liberties: ``lash``, ``python`` and ``make`` are those
of this checkout, a worker is told to stop once it works, and the few commands of `INSTEAD` are replaced.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.cli.kit import environment
from tests.docs.pages import ROOT

PATIENCE_S: Final = 120

INSTEAD: Final[Mapping[str, tuple[str, str]]] = {
    "make test": ("make test JOBS=0 ARGS=--version", "it is what runs this test"),
    "make docs": ("make docs ARGS=--version", "test_site.py builds the site by this very target"),
    "make bench": ("make bench ARGS=--help", "it measures for minutes"),
    "make peers": (":", "it fetches what lash is measured against"),
    "python3 -m venv .venv": ("python3 -m venv --without-pip .venv", "pip would be put into it for nothing"),
    "pip install lash-runtime": (":", "it is not published yet"),
    "pip install .": (":", "it fetches packages; CI installs them by make setup"),
    "pip install .[postgres]": (":", "the same; test_commands.py looks whether there is such an extra"),
    "pip uninstall lash": (":", "it would change the environment of the tests"),
    "pip install --force-reinstall lash-runtime": (":", "the same"),
}
"""The commands in whose place another one is run, or none, and why: nothing else is left out."""

_FUNCTIONS: Final = """
lash() {
  if [ "${1-}" = worker ]; then "$LASH_PYTHON" -m tests.docs.until_it_works "$@"; else "$LASH_PYTHON" -m lash "$@"; fi
}
python() { "$LASH_PYTHON" "$@"; }
python3() { "$LASH_PYTHON" "$@"; }
make() {
  command make --no-print-directory -C "$LASH_ROOT" "VENV=$LASH_VENV" \\
    -o "$LASH_VENV/.installed" -o "$LASH_VENV/.runtime" "$@"
}
"""


class TypedShell:
    """Runs blocks of commands in a folder; what one of them exports is there for the next."""

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._exported = folder / ".exported"
        places = {"LASH_PYTHON": sys.executable, "LASH_ROOT": str(ROOT), "LASH_VENV": sys.prefix}
        kept = {
            name: value for name, value in environment(variables).items() if not name.startswith(("MAKE", "MFLAGS"))
        }
        self._variables = kept | places

    def run(self, commands: str) -> str:
        """Type the commands, of which none may fail, and return what they print to standard output."""
        known = f'if [ -e "{self._exported}" ]; then . "{self._exported}"; fi'
        script = "\n".join(
            ["set -eo pipefail", known, _FUNCTIONS, replaced(commands), f'export -p > "{self._exported}"']
        )
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 0, f"{commands}ended with {ended.returncode}: {ended.stdout}{ended.stderr}"
        return ended.stdout


def commands_of(body: str) -> list[str]:
    """Return the commands of a block, each on one line, without comments."""
    lines = (shlex.join(shlex.split(line, comments=True)) for line in body.replace("\\\n", " ").splitlines())
    return [line.replace("'", "") for line in lines if line]


def replaced(body: str) -> str:
    """Return a block with the commands of `INSTEAD` replaced."""
    lines = body.replace("\\\n", " ").splitlines()
    return "\n".join(INSTEAD.get("".join(commands_of(line)), (line,))[0] for line in lines)
