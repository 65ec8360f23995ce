"""Writes the pages that are generated from the source below docs/: ``python -m tools.write_reference_pages``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.reference_pages import pages

ROOT: Final = Path(__file__).parents[1]


def main() -> None:
    """Write each page whose text has changed."""
    for name, text in pages(ROOT):
        path = ROOT / "docs" / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
