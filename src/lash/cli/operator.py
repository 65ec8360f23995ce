"""The operator of a command that changes something."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def operated(function: F) -> F:
    """Add ``--as`` to a command that an operator uses to change something; its acts are recorded."""
    option = click.option(
        "--as", "by", metavar="NAME", callback=_name, help="Who does it, for `lash acts`.  [default: the OS user]"
    )
    return option(function)


def _name(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str:
    return os_user() if given is None else given


def os_user() -> str:
    """Return the name of the user who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container may run under a uid that has no name.
        return "unknown"
