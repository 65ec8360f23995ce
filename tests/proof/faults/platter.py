"""The log of requests to a disk, and the contents it may have after a power cut.

The rules are those of a careless file system: bytes that were not synced may be there, missing, or there in some of
their sectors only, in any order; a name is durable once its directory was synced; a hole holds zeros or garbage. A
partly written sector keeps the rest, as SQLite assumes too (powersafe overwrite).
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

SECTOR: Final = 512
DIRECTORY: Final = -1
"""Stands for a directory where the number of a file is expected."""


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    file: int
    offset: int
    content: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Truncated:
    file: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Forced:
    """A file was synced."""

    file: int


@dataclasses.dataclass(frozen=True, slots=True)
class ForceFailed:
    """An fsync failed: some bytes may be on the disk, the rest is forgotten, and the next fsync succeeds."""

    file: int


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """Names were given or, with None, removed, in one step; it is durable once ``directory`` was synced."""

    directory: str
    names: tuple[tuple[str, int | None], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class DirectoryForced:
    directory: str


Change: TypeAlias = Written | Truncated
Entry: TypeAlias = Change | Forced | ForceFailed | Named | DirectoryForced


class Cut(enum.Enum):
    """What happens to bytes that were not synced."""

    NOTHING_MORE = "nothing_more"
    ALL = "all"
    SOME = "some"
    TORN = "torn"


class Platter:
    """The disk after some of the entries."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._safe: dict[int, bytes] = {}
        self._pending: dict[int, list[Change]] = {}
        self._names: dict[str, int] = {}
        self._loose: list[Named] = []

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        match entry:
            case Written() | Truncated():
                self._pending.setdefault(entry.file, []).append(entry)
            case Forced(file):
                self._safe[file] = _changed(self._safe.get(file, b""), self._pending.pop(file, ()))
            case ForceFailed(file):
                changes = self._pending.pop(file, [])
                kept = self._chance.choice((changes, (), [each for each in changes if self._chance.random() < 0.5]))
                self._safe[file] = _changed(self._safe.get(file, b""), kept)
            case Named():
                self._loose.append(entry)
            case DirectoryForced(directory):
                for named in [each for each in self._loose if each.directory == directory]:
                    self._loose.remove(named)
                    _rename(self._names, named)

    def after(self, cut: Cut, chance: random.Random) -> dict[str, bytes]:
        """Return the files, by path, that exist when the power is back."""
        names = dict(self._names)
        for named in self._loose:
            if cut is Cut.ALL or (cut is not Cut.NOTHING_MORE and chance.random() < 0.5):
                _rename(names, named)
        directories = {path for path, file in names.items() if file == DIRECTORY}
        known = {path for named in self._loose for path, file in named.names if file == DIRECTORY}
        lost = known - directories
        return {
            path: self._content(file, cut, chance)
            for path, file in names.items()
            if file != DIRECTORY and not any(str(directory) in lost for directory in Path(path).parents)
        }

    def _content(self, file: int, cut: Cut, chance: random.Random) -> bytes:
        pending = self._pending.get(file, [])
        safe = self._safe.get(file, b"")
        if cut is Cut.NOTHING_MORE:
            return safe
        if cut is Cut.ALL:
            return _changed(safe, pending)
        kept = _torn(pending, chance) if cut is Cut.TORN else pending
        filler = chance.choice((None, chance))
        return _changed(safe, [change for change in kept if chance.random() < 0.5], filler)


def _changed(content: bytes, changes: Iterable[Change], filler: random.Random | None = None) -> bytes:
    result = bytearray(content)
    for change in changes:
        end = change.size if isinstance(change, Truncated) else change.offset
        if len(result) < end:
            result += bytes(end - len(result)) if filler is None else filler.randbytes(end - len(result))
        if isinstance(change, Truncated):
            del result[change.size :]
        else:
            result[change.offset : change.offset + len(change.content)] = change.content
    return bytes(result)


def _torn(changes: Iterable[Change], chance: random.Random) -> Iterator[Change]:
    """Split a write at sector boundaries, and shuffle the parts a little."""
    for change in changes:
        if isinstance(change, Truncated):
            yield change
            continue
        first = -change.offset % SECTOR
        cuts = [0, *range(first or SECTOR, len(change.content), SECTOR), len(change.content)]
        pieces = [
            Written(change.file, change.offset + start, change.content[start:end])
            for start, end in itertools.pairwise(cuts)
        ]
        chance.shuffle(pieces)
        yield from pieces


def _rename(names: dict[str, int], named: Named) -> None:
    for path, file in named.names:
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file


def restore(files: Mapping[str, bytes], source: Path, target: Path) -> None:
    """Write the files that lay below one directory into another, new one."""
    target.mkdir()
    for path, content in files.items():
        copy = target / Path(path).relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
