"""The context of a command: storage, output, confirmation and progress."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click

from lash.cli import exits
from lash.cli.bar import drawn
from lash.cli.exits import CommandFailed, OutputClosed
from lash.cli.output import Line, json_line, write
from lash.cli.table import Column, draw
from lash.cli.url import is_postgres, redacted, scrub, sqlite_path

if TYPE_CHECKING:
    from lash.base.seal import Sealer
    from lash.stores.storage import Storage

T = TypeVar("T")

VARIABLE: Final = "LASH_URL"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
"""The part of a URL that a message may quote: it holds no password."""


class Shell:
    """One run of the command: its common options and its output."""

    def __init__(self) -> None:
        self.given_url: str | None = None
        self.debug = False
        self._format: str | None = None
        self._format_option = ""

    # The format of the output.

    @property
    def json(self) -> bool:
        """Whether the output is JSON."""
        return self._format == "json"

    @property
    def names(self) -> bool:
        """Whether the output is one id a line."""
        return self._format == "name"

    def choose(self, chosen: str, option: str) -> None:
        """Set the format of the output; a usage error if another option has set another one."""
        if self._format not in (None, chosen):
            raise click.UsageError(f"expected one output format, got {self._format_option} and {option}")
        self._format, self._format_option = chosen, option

    # The storage.

    @property
    def url(self) -> str:
        """The URL of the storage; a usage error if there is none."""
        if self.given_url == "":
            raise CommandFailed(exits.USAGE, "--url is empty; expected a URL such as sqlite:///agents.db")
        url = self.given_url or os.environ.get(VARIABLE) or ""
        if not url:
            raise CommandFailed(
                exits.USAGE, f"no storage given; use --url or set {VARIABLE}, for example to sqlite:///agents.db"
            )
        return self.checked(url)

    def checked(self, url: str) -> str:
        """Return the URL if it names a storage that outlives this run."""
        if not is_postgres(url) and not url.startswith("sqlite://"):
            scheme = _SCHEME.match(url)
            got = f"the scheme {scheme[1]!r}" if scheme else "no scheme"
            raise CommandFailed(exits.USAGE, f"expected a URL that begins with sqlite:/// or postgresql://, got {got}")
        if not is_postgres(url) and sqlite_path(url) is None:
            raise CommandFailed(
                exits.USAGE, f"{url} is in the memory of one program; name a file, as in sqlite:///agents.db"
            )
        return url

    @property
    def url_source(self) -> str:
        return "--url" if self.given_url else VARIABLE

    @property
    def shown_url(self) -> str:
        return redacted(self.url)

    @contextlib.asynccontextmanager
    async def storage(self, *, migrate: bool = False) -> AsyncIterator[Storage]:
        """Open the storage; only with ``migrate`` are tables created or migrated."""
        from lash.connect.open import open_storage

        async with await open_storage(self.url, migrate=migrate, sealer=self.sealer()) as storage:
            yield storage

    @staticmethod
    def sealer() -> Sealer | None:
        """Return the sealer with the keys of the environment; None if it has none."""
        from lash.sealing.aes_gcm import KEYS_VARIABLE, AesGcm

        return AesGcm.from_environment() if os.environ.get(KEYS_VARIABLE) else None

    # Output.

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    @property
    def coloured(self) -> bool:
        return self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int | None:
        """The current width of the terminal; None if the output is not a terminal."""
        return shutil.get_terminal_size().columns if self.is_terminal else None

    @property
    def draws_lines(self) -> bool:
        """Whether the output can show the line characters of trees."""
        try:
            "├│●…".encode(sys.stdout.encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def line(self, line: Line = "") -> None:
        """Write a line to standard output and flush it; raise OutputClosed if the reader has closed it."""
        self.lines((line,))

    def lines(self, lines: Iterable[Line]) -> None:
        """Write lines to standard output together."""
        written = tuple(lines)
        if not written:
            return
        try:
            write(sys.stdout, *written, coloured=self.coloured)
        except BrokenPipeError:
            raise OutputClosed from None

    def text(self, text: str) -> None:
        """Write a text that may have several lines."""
        self.lines(text.replace("\r\n", "\n").split("\n"))

    def value(self, value: object) -> None:
        """Write one line of JSON."""
        self.values((value,))

    def values(self, values: Iterable[object]) -> None:
        """Write a line of JSON for each value."""
        self.lines(json_line(value, sys.stdout.encoding) for value in values)

    def note(self, text: str) -> None:
        """Write a note for people to standard error."""
        write(sys.stderr, self.scrubbed(text))

    def done(self, text: str, value: object, name: str = "") -> None:
        """Report the result: a line for people, or a value or an id for programs."""
        if self.json:
            self.value(value)
        elif self.names:
            self.line(name)
        else:
            self.line(text)

    def table(
        self,
        columns: Sequence[Column],
        items: Sequence[T],
        row: Callable[[T], Sequence[str]],
        *,
        nothing: str,
        value: Callable[[T], object] | None = None,
        name: Callable[[T], str] | None = None,
    ) -> None:
        """Show items as a table, or as a line of JSON or an id each; ``nothing`` is the note for an empty list."""
        if self.json:
            self.values(item if value is None else value(item) for item in items)
        elif self.names:
            assert name is not None, "a command with names gives them"
            self.lines(name(item) for item in items)
        elif items:
            self.lines(draw(columns, [row(item) for item in items], width=self.width))
        else:
            self.note(nothing)

    def scrubbed(self, text: str) -> str:
        """Return a text without the secrets of the storage's URL."""
        return scrub(text, self.given_url or os.environ.get(VARIABLE))

    # Questions and progress.

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask for confirmation; without a terminal, ``--yes`` is required."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise CommandFailed(exits.USAGE, f"{question} Standard input is not a terminal: confirm with --yes")
        # An event loop handles Ctrl-C itself, and would do so only after the answer.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            agreed = _agreed(question)
        except KeyboardInterrupt:
            raise click.Abort from None
        finally:
            signal.signal(signal.SIGINT, handler)
        if not agreed:
            raise CommandFailed(exits.ERROR, "nothing was done")

    @contextlib.contextmanager
    def progress(self, label: str, length: int) -> Iterator[Callable[[int], None]]:
        """Show a bar on standard error if that is a terminal; yields a function to call for each step."""
        done = 0

        def step(count: int) -> None:
            nonlocal done
            done += count
            bar.show(label, done, length)

        with drawn() as bar:
            if length:
                bar.show(label, 0, length)
            yield step


def _agreed(question: str) -> bool:
    """Ask until the answer is yes or no; the end of the input is a no.

    Read without line editing, during whose setup Ctrl-C would be lost.
    """
    while True:
        write(sys.stderr, f"{question} [y/N]: ", end="")
        answer = sys.stdin.readline()
        if answer.strip().casefold() in ("y", "yes"):
            return True
        if not answer or answer.strip().casefold() in ("", "n", "no"):
            return False
