"""Files in which one field is replaced by a hostile value, with valid hashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.proof.fuzz.kit import places, replaced
from tests.transfer.kit import parsed, sealed

VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 2**63, 1.5, "", "\0", "x" * 5_000, "../../etc/passwd", "\u202e", "\ufeff"),
    *([], {}, [[]], {"a": 1}, ["\0"]),
)
"""Values of every type, and texts that a storage, a path or a terminal might misread."""


CONTRADICTIONS: Final = (
    *(
        "the data above",
        "the header promises",
        "header and meta",
        "is not one of the",
        "its ref names",
        "one sum for each",
    ),
    *("named and not there", "occurs twice", "in the order of their names", "its own ancestor", "the same frame_id"),
)
"""What only a later line reveals, because it concerns two lines."""


class Hostile(NamedTuple):
    """A changed file, the number of the changed line, and the path of the changed field."""

    content: bytes
    number: int
    way: tuple[object, ...]
    value: object

    def is_named_by(self, message: str) -> bool:
        """Return whether an error names the line and the field, or a later line that contradicts it."""
        start, _, rest = message.partition(": ")
        number = int(start.removeprefix("line "))
        names = [part for part in self.way if isinstance(part, str)]
        # The kind and the format are read before the rest of a line.
        is_named = any(name in rest for name in names) or names[-1] in ("kind", "format")
        is_contradiction = any(text in rest for text in CONTRADICTIONS)
        return (number > self.number and is_contradiction) or (number == self.number and is_named)


def hostile_files(file: bytes) -> Iterator[Hostile]:
    """Yield the file with each field of each line replaced by each value."""
    lines = parsed(file)
    for index, line in enumerate(lines[:-1]):
        for way in places(line)[1:]:
            for value in VALUES:
                changed = [*lines[:index], replaced(line, way, value), *lines[index + 1 :]]
                try:
                    content = sealed(changed)
                except (KeyError, TypeError):
                    # Without a kind there is no hash.
                    continue
                if content != file:
                    yield Hostile(content, index + 1, way, value)
