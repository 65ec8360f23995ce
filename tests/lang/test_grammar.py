"""The written grammar and the parser agree."""

from __future__ import annotations

import random
import re
from typing import TypeAlias

import pytest

from lash.lang.diagnostic import ProgramError
from lash.lang.parse import parse
from lash.lang.parse.grammar import RULES, TOKENS
from lash.lang.parse.tokens import CONTEXTUAL_WORDS, KEYWORDS, OPERATORS

_PIECES = re.compile(r'"[^"]+"|[A-Za-z_]+|[][(){}|]')
_CLOSING = {"(": ")", "[": "]", "{": "}"}
MAX_DEPTH = 12
FULL = ("foreground_statement", "process_statement")
"""Rules whose optional parts are always written: without a value the next statement would be taken for one."""

Part: TypeAlias = "str | tuple[str, list[list[Part]]]"
"""A token or the name of a rule; or a group: its bracket and its alternatives."""


def alternatives_of(pieces: list[str]) -> list[list[Part]]:
    """Return the alternatives of a rule, and remove the pieces that were read."""
    found: list[list[Part]] = [[]]
    while pieces and pieces[0] not in _CLOSING.values():
        piece = pieces.pop(0)
        if piece == "|":
            found.append([])
        elif piece in _CLOSING:
            found[-1].append((piece, alternatives_of(pieces)))
            assert pieces.pop(0) == _CLOSING[piece]
        else:
            found[-1].append(piece)
    return found


PARSED = {name: alternatives_of(_PIECES.findall(rule)) for name, rule in RULES.items()}


def height(parts: list[Part], known: dict[str, int]) -> int:
    """Return how many rules deep the shortest text of a sequence is."""
    heights = [0]
    for part in parts:
        if isinstance(part, str):
            heights.append(known.get(part, 10_000) if part in RULES else 0)
        elif part[0] == "(":
            heights.append(min(height(each, known) for each in part[1]))
    return max(heights)


def heights_of_rules() -> dict[str, int]:
    known: dict[str, int] = {}
    for _ in RULES:
        known = {name: 1 + min(height(each, known) for each in found) for name, found in PARSED.items()}
    return known


HEIGHTS = heights_of_rules()


class Sentence:
    """A random program, derived from the rules."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0
        self._words: list[str] = []
        self._contexts = {"main"}
        self._rule("program", 0)

    @property
    def text(self) -> str:
        return " ".join(self._words)

    def _rule(self, name: str, depth: int) -> None:
        outer = self._contexts
        if name == "process":
            self._contexts = {"process"}
        elif name in ("for_statement", "while_statement"):
            self._contexts = outer | {"loop"}
        self._one_of(PARSED[name], depth, name)
        self._contexts = outer

    def _one_of(self, found: list[list[Part]], depth: int, rule: str) -> None:
        usable = [each for each in found if self._is_possible(each[0], rule)]
        if depth > MAX_DEPTH:
            usable = [min(usable, key=lambda each: height(each, HEIGHTS))]
        for part in self._random.choice(usable):
            if not isinstance(part, str):
                self._group(*part, depth, rule)
            elif part in RULES:
                self._rule(part, depth + 1)
            else:
                self._words.append(self._token(part))

    def _is_possible(self, first: Part, rule: str) -> bool:
        """Leave out what needs a context: statements of other places, and what could continue an earlier statement."""
        if rule == "statement":
            needs = {"loop_statement": "loop", "foreground_statement": "main", "process_statement": "process"}
            return first != "expression" and needs.get(str(first), "") in {"", *self._contexts}
        return first != "unwrap"

    def _group(self, bracket: str, found: list[list[Part]], depth: int, rule: str) -> None:
        most = 0 if depth > MAX_DEPTH else 2 if bracket == "{" else 1
        count = 1 if bracket == "(" or rule in FULL else self._random.randint(0, most)
        for _ in range(count):
            self._one_of(found, depth, rule)

    def _token(self, kind: str) -> str:
        self._names += 1
        numbered = {"NAME": f"n{self._names}", "NUMBER": f"{self._names}.5", "STRING": f'"s{self._names}"'}
        if kind == "KEYWORD":
            return self._random.choice(KEYWORDS)
        return numbered.get(kind) or kind.strip('"')


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_derived_programs_are_parsed(first: int) -> None:
    """Programs that follow the rules have no error, except for fields that happen to have the same name."""
    for seed in range(first, first + 50):
        try:
            parse(Sentence(seed).text)
        except ProgramError as error:
            if error.kind != "duplicate-field":
                raise


def test_every_rule_and_word_is_used() -> None:
    """No rule is missing or superfluous, and the words of the grammar are those of the lexer."""
    pieces = {piece for rule in RULES.values() for piece in _PIECES.findall(rule)}
    names = {piece for piece in pieces if piece[0].isalpha()}
    assert names == (RULES.keys() | TOKENS.keys()) - {"program"}
    words = {piece.strip('"') for piece in pieces if piece.startswith('"')}
    spelled = {word for word in words if word[0].isalpha()}
    assert spelled - {"title", "description", "list", "enum", "Process", "TriggerHandle"} == (
        {*KEYWORDS, *CONTEXTUAL_WORDS} - {"call", "trigger", "parallel"}
    )
    assert words - spelled == set(OPERATORS)
