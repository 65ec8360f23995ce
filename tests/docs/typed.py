"""A shell in which the commands of a page are typed.

Commands run as for the reader, with these exceptions: ``lash``, ``python`` and ``make`` come from this checkout, a
worker is stopped once it is ready, and the commands of `INSTEAD` are replaced.
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

PATIENCE_S: Final = 300

INSTEAD: Final[Mapping[str, tuple[str, str]]] = {
    "make test": ("make test JOBS=0 ARGS=--version", "it is what runs this test"),
    "make docs": ("make docs ARGS=--version", "test_site.py builds the site with this target"),
    "make bench": ("make bench ARGS=--help", "it measures for minutes"),
    "make peers": (":", "it fetches what lash is measured against"),
    "python3 -m venv .venv": ("python3 -m venv --without-pip .venv", "the tests do not need pip in it"),
    "pip install lash-runtime": (":", "it is not published yet"),
    "pip install .": (":", "it fetches packages; CI installs them by make setup"),
    "pip install .[postgres]": (":", "it fetches packages; test_commands.py checks that the extra exists"),
    "pip install .[encryption]": (":", "the same"),
    "pip install .[openai]": (":", "the same"),
    "pip install .[web]": (":", "the same"),
    "pip install .[otel]": (":", "the same"),
    "pip install .[code]": (":", "the same"),
    "pip install .[mcp]": (":", "the same"),
    "lash web": (":", "it serves until a signal; tests/proof/web runs it"),
    "lash web --allow act": (":", "the same"),
    "lash demo --web": (":", "it waits for a browser; the same"),
    "lash web --host 0.0.0.0 --allow-host lash.internal --token $TOKEN": (":", "the same"),
    "lash web --host 0.0.0.0 --allow-host lash.internal --trust-header X-Forwarded-User --trusted-proxy 10.0.0.0/8": (
        ":",
        "the same",
    ),
    "lash mcp --http HOST:PORT": (":", "it serves until a signal; tests/protocols/mcp runs it"),
    "pip uninstall lash": (":", "it would change the environment of the tests"),
    "pip install --force-reinstall lash-runtime": (":", "the same"),
}
"""Commands that are replaced by another one, or by none, with the reason; all others run."""

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
    """Runs blocks of commands in a directory; exported variables carry over to the next block."""

    def __init__(self, directory: Path, variables: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._exported = directory / ".exported"
        places = {"LASH_PYTHON": sys.executable, "LASH_ROOT": str(ROOT), "LASH_VENV": sys.prefix}
        kept = {
            name: value for name, value in environment(variables).items() if not name.startswith(("MAKE", "MFLAGS"))
        }
        self._variables = kept | places

    def run(self, commands: str) -> str:
        """Run the commands, none of which may fail, and return their standard output."""
        known = f'if [ -e "{self._exported}" ]; then . "{self._exported}"; fi'
        script = "\n".join(
            ["set -eo pipefail", known, _FUNCTIONS, replaced(commands), f'export -p > "{self._exported}"']
        )
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=self._directory,
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
