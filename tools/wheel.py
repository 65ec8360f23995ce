"""Build the sdist and the wheel, and try the wheel as a user has it: ``python -m tools.wheel``, as ``make wheel`` does.

The wheel is built from the sdist, so the sdist is complete. It is installed with its dependencies into an empty
environment. The command and the demonstration then run from there, in a directory outside the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
_NEEDED: Final = ("lash/py.typed", "lash/sqlite/sql/", "lash/postgres/sql/", "lash/sync/__init__.pyi")
"""Files without which an installed lash is incomplete, though it may import."""


def main() -> int:
    """Build, install and run; the status is that of the first command that fails."""
    try:
        with tempfile.TemporaryDirectory(prefix="lash-wheel-") as directory:
            wheel = build(Path(directory))
            check_content(wheel)
            try_out(wheel, Path(directory))
    except subprocess.CalledProcessError as failed:
        print(f"failed: {' '.join(map(str, failed.cmd))}", file=sys.stderr)
        return failed.returncode or 1
    print(f"built {', '.join(sorted(path.name for path in DIST.iterdir()))}; the wheel works in an empty environment")
    return 0


def build(directory: Path) -> Path:
    """Build both distributions into ``dist/``, in place of older ones, and return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    builder = _environment(directory / "builder", "build", "pip")
    _run(builder, "-m", "build", "--outdir", str(DIST), str(ROOT), cwd=directory)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check_content(wheel: Path) -> None:
    """Raise ValueError if the wheel misses a file that lash needs, or installs something beside lash."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    missing = [needed for needed in _NEEDED if not any(name.startswith(needed) for name in names)]
    if missing:
        raise ValueError(f"{wheel.name} misses {', '.join(missing)}")
    tops = {name.partition("/")[0] for name in names}
    foreign = [top for top in tops if top != "lash" and not top.endswith(".dist-info")]
    if foreign:
        raise ValueError(f"{wheel.name} also installs {', '.join(sorted(foreign))}")


def try_out(wheel: Path, directory: Path) -> None:
    """Install the wheel into an empty environment, and run the command and the demonstration from it."""
    python = _environment(directory / "user", str(wheel))
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    _run(python, "-c", "import lash, sys; assert lash.__file__.startswith(sys.prefix), lash.__file__", cwd=elsewhere)
    subprocess.run([python.with_name("lash"), "--version"], cwd=elsewhere, env=_variables(), check=True)  # noqa: S603 (our own command)
    _run(python, "-m", "lash.demo", cwd=elsewhere)


def _environment(path: Path, *requirements: str) -> Path:
    """Create an environment with these requirements and return its interpreter."""
    venv.create(path, with_pip=False, symlinks=True)
    python = path / "bin" / "python"
    uv = shutil.which("uv") if os.environ.get("LASH_USE_UV") else None
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    installer = pip if uv is None else [uv, "pip", "install", "--python", str(python)]
    subprocess.run([*installer, "--quiet", *requirements], env=_variables(), check=True)  # noqa: S603 (as above)
    return python


def _run(python: Path, *arguments: str, cwd: Path) -> None:
    subprocess.run([python, *arguments], cwd=cwd, env=_variables(), check=True)  # noqa: S603 (as above)


def _variables() -> dict[str, str]:
    """Return the environment without paths that would find the checkout instead of what is installed."""
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


if __name__ == "__main__":
    sys.exit(main())
