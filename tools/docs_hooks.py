"""Hooks that MkDocs calls while it builds the site; named in ``mkdocs.yml``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.reference_pages import pages

SOURCE_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<path>(?:src|tests|tools|benchmarks)/[^)]+)\)")
"""A link from a page into the source tree: it works in a checkout and on a code host."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are generated from the source."""
    for path, text in pages(Path(config.config_file_path).parent):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Keep only the text of links into the source tree, which is not part of the site."""
    return SOURCE_LINK.sub(lambda match: match["text"], markdown)
