"""Entry point of the ``lash`` command: every outcome becomes an exit code and at most one line."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Final

from lash.cli.output import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lash.cli.shell import Shell


_COMPLETE: Final = "_LASH_COMPLETE"
"""As in `lash.cli.completion`, which is imported on demand."""
_INTERRUPTED: Final = 130
"""As in `lash.cli.exits`, which may not be imported yet when Ctrl-C is pressed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; `lash.cli.exits` says what each means."""
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _main(arguments: Sequence[str] | None) -> int:
    try:
        import click  # noqa: F401 (imported here, so that its absence can be explained)
    except ImportError:
        write(sys.stderr, "lash: the lash command needs click: pip install 'click>=8.1'")
        return 1
    from lash.cli.shell import Shell

    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # Characters that the terminal cannot show are escaped instead of raising an error.
            reconfigure(errors="backslashreplace")
    shell = Shell()
    code = _run(shell, None if arguments is None else list(arguments))
    return _flushed(code)


def _run(shell: Shell, arguments: list[str] | None) -> int:
    """Run the command; an error is written to standard error, without the secrets of the URL."""
    from lash.cli import exits
    from lash.cli.root import root

    if os.environ.get(_COMPLETE):
        # Registers the completion of bash.
        import lash.cli.completion  # noqa: F401
    try:
        result: object = root.main(arguments, prog_name="lash", standalone_mode=False, obj=shell)
    except BaseException as error:  # noqa: BLE001 (the end of the program: every outcome has a code)
        code, line = exits.explain(error)
        if shell.debug and line:
            _write_error(shell.scrubbed("".join(traceback.format_exception(error))).rstrip("\n"))
        if line:
            _write_error(shell.scrubbed(f"lash: {line}"))
        return code
    return result if isinstance(result, int) else exits.OK


def _write_error(text: str) -> None:
    with contextlib.suppress(OSError):
        write(sys.stderr, *text.split("\n"))


def _flushed(code: int) -> int:
    """Flush the output; a reader that has closed it needs no message."""
    from lash.cli import exits

    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = exits.PIPE_CLOSED
    if code == exits.PIPE_CLOSED:
        # The interpreter flushes again at exit, and would print an error.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
