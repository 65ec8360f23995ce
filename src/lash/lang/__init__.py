"""lashlang: a small language for programs that models write, from text to a durable process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lash.lang.diagnostic import ProgramError as ProgramError
    from lash.lang.machine.limits import Limits as Limits
    from lash.lang.process.engine import Lashlang as Lashlang
    from lash.lang.process.program import LashlangProcess as LashlangProcess
    from lash.runtime.turns.cell import CellResult as CellResult
else:
    _HOMES = {
        "CellResult": "lash.runtime.turns.cell",
        "Lashlang": "lash.lang.process.engine",
        "LashlangProcess": "lash.lang.process.program",
        "Limits": "lash.lang.machine.limits",
        "ProgramError": "lash.lang.diagnostic",
    }
    """Where each name comes from. It is imported when it is first used: parsing a program needs no engine."""
    __all__ = sorted(_HOMES)  # noqa: PLE0605 (all of them are text)

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module 'lash.lang' has no attribute {name!r}")
        value: object = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
