"""Programs in C, compiled where they are used."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCES = Path(__file__).resolve().parent.parent / "native"


def build(name: str, directory: Path, *options: str) -> Path | None:
    """Compile a program into a directory; print why and return None if that is not possible."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print(f"no C compiler found: what needs {name}.c is left out")
        return None
    program = directory / name
    command = [compiler, "-O2", "-o", str(program), str(_SOURCES / f"{name}.c"), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{name}.c was not built, and what needs it is left out:\n{done.stderr}")
        return None
    return program
