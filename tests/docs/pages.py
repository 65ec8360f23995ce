"""The pages of the documentation, and the code blocks in them.

The Python blocks of one page, put together, are one program. A comment line right above a block marks it:

``<!-- fragment: why -->``
    The block is compiled and not run, because it needs what a test does not have.
``<!-- output -->``
    The block is text that the program prints.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
SHELLS: Final = frozenset({"sh", "bash", "console", "shell"})

_FENCE = re.compile(
    r"^(?:<!-- (?P<marker>[a-z]+)(?:: (?P<reason>[^\n]+?))? -->\n)?"
    r"```(?P<language>[a-z]*)[^\n]*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MARKERS: Final = frozenset({None, "fragment", "output"})


class Block(msgspec.Struct, frozen=True):
    """One fenced block and the number of its first line."""

    language: str
    body: str
    line: int
    marker: str | None = None
    reason: str | None = None


def markdown_files() -> list[Path]:
    """Return the pages whose code is run: all but the decision records, which are history."""
    return sorted(path for path in DOCS.rglob("*.md") if "adr" not in path.relative_to(DOCS).parts)


def page_id(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a page; a marker that nobody knows is an error."""
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("body")) + 1
        if match["marker"] not in _MARKERS or (match["marker"] == "fragment" and not match["reason"]):
            raise ValueError(f"line {line}: a block is marked `fragment: why` or `output`, not {match['marker']!r}")
        found.append(Block(match["language"], match["body"], line, match["marker"], match["reason"]))
    return found


def program_of(blocks: list[Block]) -> str:
    """Return the blocks that are run as one program, each line at its place in the page."""
    lines: list[str] = []
    for block in blocks:
        if block.language == "python" and block.marker is None:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.body.splitlines()
    return "\n".join(lines) + "\n"


def compiled(source: str, path: Path) -> CodeType:
    """Return the code of a page or a block, in which ``await`` may stand outside of functions."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(source, str(path), "exec", flags=flags, dont_inherit=True)
    return code


def run_page(path: Path, folder: Path) -> None:
    """Run the program of a page, then its functions that are named like tests; ``folder`` is for their files."""
    module = ModuleType("lash_documentation_page")
    sys.modules[module.__name__] = module
    try:
        code = compiled(program_of(blocks_of(path.read_text(encoding="utf-8"))), path)
        _finish(eval(code, vars(module)))
        for name, value in list(vars(module).items()):
            if name.startswith("test_") and inspect.isfunction(value):
                _run_test(value, folder)
    finally:
        del sys.modules[module.__name__]


def _run_test(function: Callable[..., object], folder: Path) -> None:
    wanted = inspect.signature(function).parameters
    _finish(function(**({"tmp_path": folder} if "tmp_path" in wanted else {})))


def _finish(result: object) -> None:
    if isinstance(result, Awaitable):
        asyncio.run(_awaited(result))


async def _awaited(result: Awaitable[object]) -> None:
    await result
