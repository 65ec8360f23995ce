"""Text search: the words of a query."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput
from lash.plan.session.search import search_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("my money", ("my", "money")),
        ("Money? MONEY: money, Money", ("Money", "MONEY", "money")),
        ("don't_stop 100%", ("don", "t", "stop", "100")),
        ("Ko\u0308ln", ("K\u00f6ln",)),
        ("x" * 100, ("x" * 64,)),
        (" ".join(map(str, range(10))), tuple(map(str, range(10)))),
    ],
)
def test_words_are_runs_of_letters_and_digits(text: str, words: tuple[str, ...]) -> None:
    """Each is there once, in a composed form, and cut; nothing else is left of the text."""
    assert search_words(text) == words


@pytest.mark.parametrize("text", ["", "  ", "%_'\"*", "\0", 5, None, " ".join(map(str, range(11)))])
def test_a_search_needs_a_few_words(text: object) -> None:
    """A text without words, or with too many, is refused."""
    with pytest.raises(InvalidInput):
        search_words(text)
