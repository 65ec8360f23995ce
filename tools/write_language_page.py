"""Writes the generated part of docs/reference/lashlang.md: ``python -m tools.write_language_page``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lash.lang.link.builtins import RESULTS
from lash.lang.parse.cursor import MAX_NESTING
from lash.lang.parse.expressions import BINARY, PRECEDENCE
from lash.lang.parse.grammar import GRAMMAR, TOKENS
from lash.lang.parse.parser import MAX_SOURCE
from lash.lang.parse.tokens import CONTEXTUAL_WORDS, KEYWORDS
from lash.lang.printing.types import type_text
from lash.lang.syntax.nodes import MAX_DEPTH
from lash.lang.values.builtins import BUILTINS
from tools.repository import Finding, Repository

NAME: Final = "docs/reference/lashlang.md"
PAGE: Final = Path(__file__).parents[1] / NAME
BEGIN: Final = "<!-- generated: python -m tools.write_language_page -->"


def language_page_is_current(repository: Repository) -> Iterator[Finding]:
    """The generated part of the page about lashlang is what the grammar and the tables say."""
    path = repository.root / NAME
    if path.exists():
        present = path.read_text(encoding="utf-8")
        if page(present) != present:
            yield Finding(NAME, 0, "not current; run: python -m tools.write_language_page")


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")


def page(present: str) -> str:
    """Return the page with its generated part replaced; the part before the mark is written by hand."""
    kept, mark, _old = present.partition(BEGIN)
    if not mark:
        raise ValueError(f"{PAGE} has no line {BEGIN}")
    parts = (_grammar(), _words(), _operators(), _builtins(), _bounds())
    return kept + "\n".join([BEGIN, *(line for part in parts for line in ("", *part))]) + "\n"


def _grammar() -> Iterator[str]:
    yield from ("## Grammar", "", "`{ }` repeats, `[ ]` is optional, and names in capitals are tokens.", "", "```text")
    width = max(len(name) for section in GRAMMAR.values() for name in section)
    for number, section in enumerate(GRAMMAR.values()):
        if number:
            yield ""
        for name, rule in section.items():
            yield f"{name:<{width}} = {rule}"
    yield from ("```", "", "| token | |", "|---|---|")
    for name, meaning in TOKENS.items():
        yield f"| {name} | {meaning} |"


def _words() -> Iterator[str]:
    yield from ("## Words", "", f"Keywords are never names, except of fields: {_quoted(KEYWORDS)}.", "")
    yield f"These words have a meaning at certain places, and are names elsewhere: {_quoted(CONTEXTUAL_WORDS)}."


def _operators() -> Iterator[str]:
    yield from ("## Operators", "", "From the weakest to the strongest; all binary operators are left associative.", "")
    yield from ("| operators | |", "|---|---|", "| `?` `:` | conditional; right associative |")
    for strength in sorted(set(PRECEDENCE.values())):
        signs = [sign for sign, operator in BINARY.items() if PRECEDENCE[operator] == strength]
        names = dict.fromkeys(operator for operator in BINARY.values() if PRECEDENCE[operator] == strength)
        yield f"| {' '.join(f'`{_cell(sign)}`' for sign in signs)} | {', '.join(names)} |"
    yield "| `-` `not` `!` `await` | prefix |"
    yield "| `.` `[ ]` `?` | field or operation, index, unwrap |"


def _builtins() -> Iterator[str]:
    yield from ("## Builtins", "", "| builtin | | returns |", "|---|---|---|")
    for name, builtin in BUILTINS.items():
        yield f"| `{builtin.signature}` | {_cell(builtin.help)} | {_cell(type_text(RESULTS[name]))} |"


def _bounds() -> Iterator[str]:
    yield from ("## Bounds", "", "| what | bound |", "|---|---|")
    yield f"| a source text | {MAX_SOURCE:,} characters |"
    yield f"| nested blocks, brackets, branches and prefix operators | {MAX_NESTING} levels |"
    yield f"| a chain of operators, fields or `else if` | {MAX_DEPTH} levels of the syntax tree |"


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
