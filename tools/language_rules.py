"""The language rule: prose that a reader has to decode is found, with the word to use instead.

CONTRIBUTING ("Language") has the rules; this is the part of them that a program can check. Prose is what people read:
comments, docstrings and messages of Python files, comments of SQL, and the text of Markdown files. Names in backticks,
blocks of code, strings of one word and SQL in strings are not prose.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.repository import Finding, Repository

FOLDERS: Final = ("src", "tests", "tools", "benchmarks", "examples", "docs")
PAGES: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
EXEMPT: Final = ("CONTRIBUTING.md", "tools/language_rules.py", "tests/repository/test_language_rules.py")
"""Files that quote the words in order to forbid them."""

INSTEAD: Final = {
    r"who(?:so)?ever": "name the actor: the caller, the worker, the connection",
    r"(?:some|no|any|every)body": "name the actor: the caller, another worker, no worker",
    r"those (?:who|that)|the one who|one who": "name the actor: waiters, callers, observers",
    r"for ever": "write permanently, or say until when",
    r"all the same": "write anyway, or drop it",
    r"anew": "write again",
    r"likewise": "say it",
    r"(?:tell|hear|lend)s?|told|heard|lent|lending": "nothing tells, hears or lends: report, receive, yield",
    r"mends?|mended": "write fix, fixed",
    r"settles?|settled|settling": "say what happens: deliver, finish, record, release",
    r"upkeep|tidy|tidies|tidied": "write maintenance, prune or sweep",
    r"folders?": "write directory",
    r"(?:is|are) no (?:JSON|URL|cursor|session|payload|place|option|number|text|schema|kind|way)": "expected X, got Y",
}
"""What is forbidden, and what to write in its place."""

_FORBIDDEN: Final = re.compile("|".join(rf"(?P<w{n}>\b(?:{word})\b)" for n, word in enumerate(INSTEAD)), re.IGNORECASE)
_ADVICE: Final = tuple(INSTEAD.values())
_NAMES: Final = re.compile(r"`[^`\n]*`")
_BLOCKS: Final = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_SQL: Final = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE)\b")
_TEXT_TOKENS: Final = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))


def prose_is_plain(repository: Repository) -> Iterator[Finding]:
    """No comment, docstring, message or page uses a word that the language rules forbid."""
    pages = (repository.root / name for name in PAGES)
    for path in (*repository.files(*FOLDERS, suffixes=(".py", ".sql", ".md")), *filter(Path.exists, pages)):
        name = repository.relative(path)
        if name in EXEMPT:
            continue
        for line, text in _prose(path):
            for match in _FORBIDDEN.finditer(_NAMES.sub("", text)):
                advice = _ADVICE[int(str(match.lastgroup)[1:])]
                yield Finding(name, line, f"{match[0]!r}: {advice}")


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    """Return the lines of prose in a file, each with its number."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _python_prose(text)
    elif path.suffix == ".sql":
        for number, line in enumerate(text.splitlines(), start=1):
            yield number, line.partition("--")[2]
    else:
        without_code = _BLOCKS.sub(lambda block: "\n" * block[0].count("\n"), text)
        yield from enumerate(without_code.splitlines(), start=1)


def _python_prose(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_sentence = " " in token.string and not _SQL.search(token.string)
        if token.type in _TEXT_TOKENS and is_sentence:
            yield from enumerate(token.string.splitlines(), start=token.start[0])
