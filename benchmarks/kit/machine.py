"""Facts about the machine and the versions of what took part."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

import apsw

import lash
from benchmarks.kit.report import JSONValue
from benchmarks.kit.workspace import Workspace, file_system


def lash_versions(*others: str) -> dict[str, str]:
    """Return the versions of Python, lash and the named packages; ``sqlite`` is the one within apsw."""
    versions = {"python": platform.python_version(), "lash": lash.__version__}
    for name in others:
        versions[name] = apsw.sqlite_lib_version() if name == "sqlite" else importlib.metadata.version(name)
    return versions


def postgres_versions(workspace: Workspace) -> dict[str, str]:
    """Return the versions of a comparison on PostgreSQL."""
    return lash_versions("asyncpg") | {"postgresql": workspace.server.version}


def machine_facts(directory: Path) -> dict[str, JSONValue]:
    """Return what a reader must know to judge absolute figures."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "file_system": file_system(directory),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
