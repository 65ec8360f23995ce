"""Text like prose: different for every seed, the same for the same one, and hardly compressible.

Words are drawn from a vocabulary by Zipf's law, as in natural language, so zlib makes a long text about 2.5 times
smaller and a short one less. Only the standard library is used: programs of peers import this file too.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import random

_ONSETS = (
    *"bcdfghklmnprstvw",
    "br",
    "cl",
    "cr",
    "dr",
    "fl",
    "gr",
    "pl",
    "pr",
    "sh",
    "sl",
    "sp",
    "st",
    "str",
    "th",
    "tr",
    "wh",
)
_VOWELS = (*"aeiou", "ai", "ea", "ee", "io", "oo", "ou")
_CODAS = ("", "", "", "l", "m", "n", "r", "s", "t", "ck", "ld", "nd", "ng", "nt", "rd", "st")
_WORDS = 6_000
_SENTENCE = range(6, 19)


@functools.cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Return the words, and the running sums of their frequencies."""
    chance = random.Random(20_260)
    words: dict[str, None] = {}
    while len(words) < _WORDS:
        syllables = 1 + (len(words) > 60) + (chance.random() < len(words) / _WORDS)
        parts = (chance.choice(_ONSETS) + chance.choice(_VOWELS) + chance.choice(_CODAS) for _ in range(syllables))
        words["".join(parts)] = None
    return list(words), list(itertools.accumulate(1 / (rank + 3) for rank in range(_WORDS)))


def prose(seed: object, characters: int) -> str:
    """Return sentences of exactly this many characters."""
    words, sums = _vocabulary()
    chance = random.Random(repr(seed))
    pieces: list[str] = []
    length, left = 0, 0
    while length < characters:
        word = words[bisect.bisect(sums, chance.random() * sums[-1])]
        if left == 0:
            left = chance.choice(_SENTENCE)
            word = word.capitalize()
        left -= 1
        # Numbers stand in most technical text, and nothing predicts them.
        piece = (f"{word} {chance.randrange(10_000)}" if chance.random() < 0.04 else word) + (" " if left else ". ")
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces)[:characters]
