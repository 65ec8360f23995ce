"""The pages of the documentation, and the blocks in them.

The Python and shell blocks of a page run in order, in one empty directory. A comment line right above a block marks it:

``<!-- program: agents.py -->``
    From here on the Python blocks are collected in this file, as by the reader of the page, and the commands of the
    page run it.
``<!-- output -->``
    The block is the whole output of the commands right above it, or else of the Python blocks since the last such
    block.
``<!-- elsewhere -->``
    The block needs a server; the tests of what it shows run it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import CodeType
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
README: Final = ROOT / "README.md"
SHELLS: Final = frozenset({"sh", "bash"})

_FENCE = re.compile(
    r"^(?:<!-- (?P<marker>[a-z]+)(?:: (?P<name>[^\n]+?))? -->\n)?"
    r"```(?P<language>[a-z]*)[^\n]*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NOT_RUN: Final = frozenset({"adapters", "adr", "internals"})
"""Directories of history and of reports, which describe the past, and of adapters, whose pages `make adapters` runs."""


class Block(msgspec.Struct, frozen=True):
    """One fenced block and the number of its first line."""

    language: str
    body: str
    line: int
    marker: str | None = None
    name: str | None = None


def markdown_files() -> list[Path]:
    """Return the pages whose blocks are run."""
    return sorted(path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in _NOT_RUN)


def page_id(path: Path) -> str:
    return path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a page; raise for an unknown marker."""
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("body")) + 1
        marker, name = match["marker"], match["name"]
        if marker not in (None, "program", "output", "elsewhere") or (marker == "program") != bool(name):
            raise ValueError(f"line {line}: a block is marked `program: file`, `output` or `elsewhere`, not {marker!r}")
        found.append(Block(match["language"], match["body"], line, marker, name))
    return found


def compiled(block: Block, path: Path) -> CodeType:
    """Return the code of a block with the page's line numbers; top-level ``await`` is allowed."""
    source = "\n" * (block.line - 1) + block.body
    code: CodeType = compile(source, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code
