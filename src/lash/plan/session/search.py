"""Text search: the words of a query."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from lash.base.limits import check_text
from lash.errors import InvalidInput

_WORD: Final = re.compile(r"[^\W_]+")
_MOST: Final = 10
"""How many words a search has at most."""
_LENGTH: Final = 64
"""How many characters of a word are searched for."""


def search_words(text: object) -> tuple[str, ...]:
    """Return the words of a query, which are runs of letters and digits, each once.

    Raises InvalidInput for a text without any, or with too many.
    """
    found = _WORD.findall(unicodedata.normalize("NFC", check_text("text", text)))
    words = tuple(dict.fromkeys(word[:_LENGTH] for word in found))
    if not words:
        raise InvalidInput("expected a text to search for with at least one letter or digit")
    if len(words) > _MOST:
        raise InvalidInput(f"the text to search for has {len(words)} words; at most {_MOST} are allowed")
    return words
