"""The position of the parser in the tokens, and what encloses it."""

from __future__ import annotations

from typing import Final

from lash.lang.diagnostic import Diagnostic, ProgramError
from lash.lang.parse.lexer import lex
from lash.lang.parse.tokens import END, KEYWORDS, NAME, STRING, Token
from lash.lang.syntax.span import Span

MAX_NESTING: Final = 40
"""How deep blocks, brackets, branches of conditionals and prefix operators may be nested, all counted together."""


_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}


class Cursor:
    """A parser's state: the next token, the nesting, and whether a process body or a loop encloses it.

    ``after_groups`` has the position after the bracket that closes each opening one, and ``conditionals`` what earlier
    scans for a `:` found; both keep the look-ahead linear.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens, self.comments = lex(source)
        self.after_groups = _after_groups(self.tokens)
        self.conditionals: dict[int, bool] = {}
        self.position = 0
        self.in_process = False
        self.in_loop = False
        self._nesting = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def peek(self, distance: int = 1) -> Token:
        """Return a token after the next one; the end of the program comes after the last."""
        return self.tokens[min(self.position + distance, len(self.tokens) - 1)]

    def at(self, *kinds: str) -> bool:
        return self.token.kind in kinds

    def at_word(self, *words: str) -> bool:
        """Return whether the next token is a name that is one of these words."""
        return self.token.kind == NAME and self.token.text in words

    def advance(self) -> Token:
        token = self.token
        if token.kind != END:
            self.position += 1
        return token

    def accept(self, *kinds: str) -> Token | None:
        """Consume and return the next token if it is of one of these kinds."""
        return self.advance() if self.at(*kinds) else None

    def accept_word(self, word: str) -> Token | None:
        return self.advance() if self.at_word(word) else None

    def expect(self, kind: str, what: str | None = None, hint: str | None = None) -> Token:
        """Consume and return the next token, or raise ProgramError saying what was expected."""
        if not self.at(kind):
            raise self.expected(what or f"`{kind}`", hint)
        return self.advance()

    def expect_string(self, what: str, hint: str | None = None) -> str:
        """Consume a string and return its value."""
        return str(self.expect(STRING, what, hint).value)

    def expect_key(self, what: str) -> str:
        """Consume a key of a record or a field: a name, a string or a keyword."""
        if self.at(STRING):
            return str(self.advance().value)
        if self.at(NAME, *KEYWORDS):
            return self.advance().text
        raise self.expected(what)

    def expected(self, what: str, hint: str | None = None) -> ProgramError:
        return self.fail("expected", f"wanted {what} but saw {self.token}", hint=hint)

    def unexpected(self, hint: str | None = None) -> ProgramError:
        return self.fail("unexpected", f"did not expect {self.token}", hint=hint)

    def fail(self, kind: str, message: str, span: Span | None = None, hint: str | None = None) -> ProgramError:
        """Return the error at this span, or at the next token."""
        return ProgramError(Diagnostic("parse", kind, message, span or self.token.span, hint), self.source)

    def span_from(self, start: Span) -> Span:
        """Return the span from a start to the end of the last consumed token."""
        return start.to(self.tokens[self.position - 1].span) if self.position else start

    def enter(self) -> None:
        """Count one more level of nesting, or raise ProgramError if it is too deep."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self.too_deep()

    def leave(self) -> None:
        self._nesting -= 1

    def too_deep(self, span: Span | None = None) -> ProgramError:
        hint = "assign parts to variables"
        return self.fail("too-deep", f"nested more than {MAX_NESTING} levels; split this up", span, hint)


def _after_groups(tokens: list[Token]) -> dict[int, int]:
    """Return the position after the closing bracket of each opening one; the end of the program if there is none."""
    found: dict[int, int] = {}
    opened: list[tuple[int, str]] = []
    for position, token in enumerate(tokens):
        if token.kind in _CLOSING:
            opened.append((position, _CLOSING[token.kind]))
        elif opened and token.kind == opened[-1][1]:
            found[opened.pop()[0]] = position + 1
    found.update((position, len(tokens) - 1) for position, _ in opened)
    return found
