"""A disk that fails once, or until it is repaired: clear errors, no lost writes, and normal work afterwards."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw
import pytest

import lash
from lash.errors import StorageFailure
from tests.proof.faults.disk import EFFORT, Disk, disk_below
from tests.proof.faults.platter import DirectoryForced, Forced, ForceFailed, Truncated, Written
from tests.proof.faults.sqlite.power import FILE, FILES, Story, check_database, remains, storage_url
from tests.proof.faults.work import OPERATIONS

FULL: Final = ("write", apsw.FullError, apsw.SQLITE_FULL)
FAULTS: Final[dict[str, tuple[str, type[apsw.Error], int]]] = {
    "full": FULL,
    "write": ("write", apsw.IOError, apsw.SQLITE_IOERR_WRITE),
    "sync": ("sync", apsw.IOError, apsw.SQLITE_IOERR_FSYNC),
    "read": ("read", apsw.IOError, apsw.SQLITE_IOERR_READ),
    "truncate": ("truncate", apsw.IOError, apsw.SQLITE_IOERR_TRUNCATE),
}


@dataclasses.dataclass
class Failing:
    """Refuses one kind of operation, the n-th and some after it."""

    operation: str
    error: type[apsw.Error]
    code: int
    first: int
    count: int
    asked: int = 0

    def __call__(self, operation: str, _suffix: str) -> None:
        if operation != self.operation:
            return
        self.asked += 1
        if self.first <= self.asked < self.first + self.count:
            error = self.error("made for the test")
            error.extendedresult = self.code  # type: ignore[attr-defined]
            raise error


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage after one round."""
    return tmp_path_factory.mktemp("template")


async def prepare(template: Path) -> None:
    if not (template / FILE).exists():
        async with await lash.open(
            storage_url(template, 1000), attachment_bytes=lash.FileBytes(template / FILES)
        ) as storage:
            for operation in OPERATIONS.values():
                await operation(storage, 0)


def lay_down(disk: Disk, template: Path) -> None:
    """Copy the template to the disk, fully synced."""
    shutil.copytree(template, disk.directory, dirs_exist_ok=True)
    for path in sorted(disk.directory.rglob("*")):
        if path.is_dir():
            disk.made_folder(str(path))
        else:
            file = disk.file(str(path))
            disk.log += [Truncated(file, 0), Written(file, 0, path.read_bytes()), Forced(file)]
    directories = [disk.directory, *(path for path in disk.directory.rglob("*") if path.is_dir())]
    disk.log += [DirectoryForced(str(path)) for path in directories]


async def stumble(disk: Disk, failing: Failing) -> tuple[Story, list[str], list[tuple[int, int]]]:
    """Run a round while the disk fails, and retry; return also the errors and the moments of unknown outcome."""
    story = Story(disk)
    errors: list[str] = []
    doubts: list[tuple[int, int]] = []
    bytes_below = lash.FileBytes(disk.directory / FILES)
    async with await lash.open(
        storage_url(disk.directory, 10), on_statement=story, attachment_bytes=bytes_below
    ) as storage:
        story.acknowledged(1)
        disk.fault = failing
        for name, operation in OPERATIONS.items():
            began = len(disk.log)
            try:
                await operation(storage, 1)
            except StorageFailure as error:
                errors.append(name)
                disk.fault = None
                await operation(storage, 1)
                if error.outcome_unknown:
                    doubts.append((began, len(disk.log)))
            story.acknowledged(1)
        disk.fault = None
        story.acknowledged(1)
        story.close()
    return story, errors, doubts


def moments(name: str) -> Iterator[tuple[int, int]]:
    """Return after how many operations the disk fails, and for how many, in a spread order."""
    chance = random.Random(name)
    for _ in range(6 * EFFORT):
        yield chance.randint(1, 25 if name in {"sync", "truncate"} else 120), chance.choice((1, 2, 10_000))


def cut_everywhere(story: Story, doubts: list[tuple[int, int]], target: Path, chance: random.Random) -> int:
    """Cut the power at moments of known outcome, check what is left, and return the number of cuts."""
    log = story.disk.log
    # Right after a refusal the caller gets an error, and the refusal may or may not have been applied.
    refusals = [place + 1 for place, entry in enumerate(log) if isinstance(entry, ForceFailed)][:1]
    anywhere = sorted(chance.randint(story.known[0][0], len(log)) for _ in range(8))
    cuts = 0
    for number, positions in enumerate((anywhere, *(6 * [refusals]))):
        settled = [each for each in positions if not any(began <= each < ended for began, ended in doubts)]
        directory = target / str(number)
        directory.mkdir(parents=True)
        for left in remains(story, settled, directory, chance):
            check_database(left)
            cuts += 1
    return cuts


@pytest.mark.parametrize("name", FAULTS)
async def test_a_disk_that_fails(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each operation succeeds or raises a storage failure; a retry succeeds; acknowledged writes are kept."""
    await prepare(template)
    failed: list[str] = []
    cuts = 0
    for number, (first, count) in enumerate(moments(name)):
        directory = tmp_path / str(number)
        directory.mkdir()
        with disk_below(directory, monkeypatch) as disk:
            lay_down(disk, template)
            story, errors, doubts = await stumble(disk, Failing(*FAULTS[name], first, count))
        failed += errors
        cuts += cut_everywhere(story, doubts, tmp_path / f"cut{number}", random.Random(number))
    assert cuts > 0
    # A failed checkpoint affects no caller, so not every fault shows.
    assert failed or name == "truncate"
