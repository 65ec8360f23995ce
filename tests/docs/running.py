"""Running a page of the documentation from its first block to its last."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

from tests.docs.pages import SHELLS, Block, blocks_of, compiled
from tests.docs.typed import TypedShell


def run_page(path: Path, directory: Path, *, server: tuple[str, str] | None = None) -> None:
    """Run the blocks of a page, then its functions that are named like tests.

    The working directory must be ``directory``. ``server`` is a URL in the page and its replacement. Raises
    the error of a block, and AssertionError if a block prints something else than the page shows.
    """
    text = path.read_text(encoding="utf-8")
    running = _Running(path, directory)
    with _main_module(running.module):
        for block in blocks_of(text if server is None else text.replace(*server)):
            running.block(block)
        running.tests()
    running.end()


class _Running:
    def __init__(self, path: Path, directory: Path) -> None:
        self.module = ModuleType("__main__")
        self._printed = ""
        self._typed: str | None = None
        self._path = path
        self._directory = directory
        self._shell = TypedShell(directory)
        self._program: Path | None = None
        self._is_new = False

    def block(self, block: Block) -> None:
        if block.marker == "elsewhere":
            return
        if block.marker == "output":
            self._compare(block)
            return
        self._typed = None
        if block.language == "python" and self._program_of(block) is not None:
            self._collect(block)
        elif block.language == "python":
            self._call(partial(eval, compiled(block, self._path), vars(self.module)))
        elif block.language in SHELLS:
            self._typed = self._shell.run(block.body)
            self._is_new = self._is_new and self._program is not None and self._program.name not in block.body

    def tests(self) -> None:
        for name, value in list(vars(self.module).items()):
            if name.startswith("test_") and inspect.isfunction(value):
                wanted = inspect.signature(value).parameters
                self._call(partial(value, **({"tmp_path": self._directory} if "tmp_path" in wanted else {})))

    def end(self) -> None:
        assert self._printed == "", f"the page does not show this output: {self._printed!r}"
        assert not self._is_new, f"no command runs the last blocks of {self._program}"

    def _compare(self, block: Block) -> None:
        """Compare the expected text with the output of the commands right above, or of the Python blocks."""
        printed = self._printed if self._typed is None else self._typed
        assert printed == block.body, f"line {block.line}: {printed!r} is printed, not {block.body!r}"
        if self._typed is None:
            self._printed = ""
        self._typed = None

    def _program_of(self, block: Block) -> Path | None:
        if block.name is not None:
            self._program = self._directory / block.name
        return self._program

    def _collect(self, block: Block) -> None:
        assert self._program is not None
        with self._program.open("a", encoding="utf-8") as file:
            file.write(f"{block.body}\n\n")
        self._is_new = True

    def _call(self, function: Callable[[], object]) -> None:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            result = function()
            if isinstance(result, Awaitable):
                asyncio.run(_awaited(result))
        self._printed += shown.getvalue()


@contextlib.contextmanager
def _main_module(module: ModuleType) -> Iterator[None]:
    """Make a page the main module, as it is for its reader."""
    ours = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.modules["__main__"] = ours


async def _awaited(result: Awaitable[object]) -> None:
    await result
