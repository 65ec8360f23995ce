"""What MkDocs calls while it builds the site; named in ``mkdocs.yml``."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tools.reference_pages import pages


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the source."""
    for path, text in pages(Path(config.config_file_path).parent):
        files.append(File.generated(config, path, content=text))
    return files
