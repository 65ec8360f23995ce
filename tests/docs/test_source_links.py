"""Links from the documentation into the source tree have targets that match their texts."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, page_id
from tools.docs_hooks import SOURCE_LINK

_NAME = re.compile(r"`(?:\w+\.)*(?P<name>\w+)(?:\(\))?`")
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if SOURCE_LINK.search(path.read_text(encoding="utf-8"))]


@cache
def _names(path: Path) -> frozenset[str]:
    """Return the functions and classes of a module, or the named queries of an SQL file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        return frozenset(re.findall(r"^-- name: (\w+)", text, re.MULTILINE))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return frozenset(node.name for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_source_link_leads_to_what_it_names(page: Path) -> None:
    """The file exists, and defines the function, class or query that is the text of the link."""
    for match in SOURCE_LINK.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / match[0].rpartition("(")[2].rstrip(")")).resolve()
        assert target.exists(), match[0]
        named = _NAME.fullmatch(match["text"])
        if named is not None and target.is_file():
            assert named["name"] in _names(target), match[0]
