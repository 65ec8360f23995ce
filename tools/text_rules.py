"""Rules about text: no notes of undone work, and decisions numbered without gaps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tools.repository import Finding, Repository

DECISIONS: Final = "docs/adr"

# The brackets keep this pattern from finding itself.
_LEFT_TO_DO = re.compile(r"\b(?:TO[D]O|FIX[M]E)\b")
_DECISION = re.compile(r"(?P<number>[0-9]{4})-[a-z0-9]+(?:-[a-z0-9]+)*\.md")


def nothing_left_to_do(repository: Repository) -> Iterator[Finding]:
    """No file of the repository carries a note of work left undone; such notes belong into issues."""
    folders = ("src", "tests", "tools", "benchmarks", "examples", "docs")
    for path in repository.files(*folders, suffixes=(".py", ".sql", ".md", ".json")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if _LEFT_TO_DO.search(line):
                yield Finding(repository.relative(path), number, "work left undone belongs into an issue")


def decisions_are_numbered(repository: Repository) -> Iterator[Finding]:
    """Decision records are named ``NNNN-title.md``, numbered from 0001, each number once, without a gap."""
    numbers: list[int] = []
    for path in repository.files(DECISIONS, suffixes=(".md",)):
        match = _DECISION.fullmatch(path.name)
        if match is None:
            yield Finding(repository.relative(path), 0, "the name must look like 0001-some-title.md")
            continue
        numbers.append(int(match["number"]))
        if numbers[-1] != len(numbers):
            message = f"number {numbers[-1]:04} stands where {len(numbers):04} is due"
            yield Finding(repository.relative(path), 0, message)
