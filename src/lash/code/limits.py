"""How much a program may use."""

from __future__ import annotations

from lash.errors import ConfigError
from lash.model.value import Value


class CodeLimits(Value, frozen=True, kw_only=True):
    """How much one run of a program may use; a program that needs more ends with the code ``program_limit``."""

    compute_s: float = 2.0
    """The longest time that it may compute between two calls of its functions."""
    memory_bytes: int = 64 * 1024 * 1024
    """The largest heap of the sandbox. The sandbox itself takes about 12 MB."""
    recursion: int = 500
    """The depth of nested calls."""
    calls: int = 1_000
    """How often it may call a function, sleep, read the clock or look up a name that it did not define."""
    source_bytes: int = 256 * 1024
    """The longest source."""
    printed_chars: int = 64 * 1024
    """How much printed text is shown; the rest is dropped, and the last line says so."""

    def __post_init__(self) -> None:
        if min(getattr(self, name) for name in self.__struct_fields__) <= 0:
            raise ConfigError(f"expected limits above 0, got {self!r}")
