"""What steps raise to say something to the runtime, and what the runtime raises to end a run."""

from __future__ import annotations


class Permanent(Exception):
    """Raise this in a step, or a subclass of it, when trying again cannot help: the failure is recorded at once."""


class Suspended(BaseException):
    """The run stops here and goes on later or elsewhere; code must let it pass."""
