"""Small repositories to try the rules on."""

from __future__ import annotations

from pathlib import Path

from tools.repository import Finding, Repository, Rule


def tree(root: Path, files: dict[str, str]) -> Repository:
    """Write the files below the root. ``{sqlite}`` and ``{postgres}`` stand for the backends' packages."""
    for name, text in files.items():
        path = root / name.format(sqlite="src/lash/sqlite", postgres="src/lash/postgres")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Repository(root)


def messages(rule: Rule, repository: Repository) -> list[str]:
    return [finding.message for finding in rule(repository)]


def places(found: list[Finding]) -> list[tuple[str, int]]:
    return [(finding.path, finding.line) for finding in found]
