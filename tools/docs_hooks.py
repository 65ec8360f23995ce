"""Hooks that MkDocs calls while it builds the site; named in ``mkdocs.yml``."""

from __future__ import annotations

import re
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

SOURCE_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<path>(?:src|tests|tools|benchmarks)/[^)]+)\)")
"""A link from a page into the source tree: it works in a checkout and on a code host."""


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Keep only the text of links into the source tree, which is not part of the site."""
    return SOURCE_LINK.sub(lambda match: match["text"], markdown)
