"""A storage whose disk records all requests, and checks of what a power cut leaves."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import apsw

import lash
from tests.proof.faults.disk import Disk
from tests.proof.faults.platter import Cut, Platter, restore
from tests.proof.faults.work import OPERATIONS, content_of

FILE: Final = "lash.db"
FILES: Final = "attachments"


def storage_url(directory: Path, checkpoint_pages: int) -> str:
    """Return the URL of the storage in a directory."""
    return f"sqlite:///{directory / FILE}?checkpoint_pages={checkpoint_pages}"


def digest_of(connection: apsw.Connection) -> str:
    """Return a digest of every row of the database."""
    # The table of words cannot be read as a whole; the tables in which it stores its entries can.
    stored = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY 1"
    names = [name for (name,) in connection.execute(stored)]
    rows = [connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


@dataclasses.dataclass
class Story:
    """The history of a storage: every committed state, and what its users knew at each position of the disk's log."""

    disk: Disk
    states: list[str] = dataclasses.field(default_factory=list)
    known: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    """The length of the disk's log, the newest state acknowledged by then, and the attachments."""
    _look: apsw.Connection | None = None
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def __call__(self, name: str) -> None:
        """Record the state between two transactions; it is the storage's statement hook."""
        if name == "begin":
            self.look()

    def look(self) -> None:
        """Add the current state if it is new."""
        with self._lock:
            if self._look is None:
                self._look = apsw.Connection(str(self.disk.directory / FILE), vfs="unix")
            state = digest_of(self._look)
            if not self.states or self.states[-1] != state:
                self.states.append(state)

    def acknowledged(self, attachments: int) -> None:
        """Record that everything until now was acknowledged."""
        self.look()
        self.known.append((len(self.disk.log), len(self.states) - 1, attachments))

    def close(self) -> None:
        if self._look is not None:
            self._look.close()


async def live(disk: Disk, *, rounds: int, checkpoint_pages: int, reopen_after: int) -> Story:
    """Use a storage for some rounds, reopening it after some of them."""
    story = Story(disk)
    number = 0
    while number < rounds:
        bytes_below = lash.FileBytes(disk.directory / FILES)
        url = storage_url(disk.directory, checkpoint_pages)
        async with await lash.open(url, on_statement=story, attachment_bytes=bytes_below) as storage:
            story.acknowledged(number)
            for each in range(number, min(rounds, number + reopen_after)):
                for name, operation in OPERATIONS.items():
                    await operation(storage, each)
                    story.acknowledged(each + (name in {"attach", "artifact"}))
            number += reopen_after
            story.close()
            story._look = None
    return story


@dataclasses.dataclass(frozen=True)
class Remains:
    """A directory as it may look after a power cut, and the least that it must hold."""

    directory: Path
    cut: Cut
    position: int
    opened: bool
    allowed: Sequence[str]
    attachments: int


def remains(story: Story, positions: Sequence[int], target: Path, chance: random.Random) -> Iterator[Remains]:
    """Cut the power at each of these positions of the disk's log, given in order."""
    platter = Platter(random.Random(chance.random()))
    done = 0
    for number, position in enumerate(positions):
        for entry in story.disk.log[done:position]:
            platter.apply(entry)
        done = max(done, position)
        known = [each for each in story.known if each[0] <= position]
        state, attachments = (known[-1][1], known[-1][2]) if known else (0, 0)
        cut = chance.choice(list(Cut))
        directory = target / str(number)
        restore(platter.after(cut, chance), story.disk.directory, directory)
        if chance.random() < 0.5:
            # Shared memory is not synced; its contents must not matter.
            (directory / f"{FILE}-shm").write_bytes(chance.randbytes(32_768))
        yield Remains(directory, cut, position, bool(known), story.states[state:], attachments)


def check_database(left: Remains) -> None:
    """Assert that the database is whole, in a committed state, and no older than the acknowledged one."""
    path = left.directory / FILE
    what = f"cut {left.cut.value} after {left.position} entries"
    if not left.opened and not path.exists():
        return
    assert path.exists(), f"{what}: the database is gone"
    connection = apsw.Connection(str(path))
    try:
        assert connection.pragma("integrity_check") == "ok", what
        found = digest_of(connection)
    finally:
        connection.close()
    if left.opened:
        assert found in left.allowed, f"{what}: an acknowledged write is missing, or half a transaction is there"


async def check_storage(left: Remains) -> None:
    """Assert that lash opens it, finds no damage, has every attachment, and accepts writes."""
    url = storage_url(left.directory, 1000)
    async with await lash.open(url, attachment_bytes=lash.FileBytes(left.directory / FILES)) as storage:
        report = await storage.maintenance.collect_garbage(dry_run=True)
        assert report.is_clean, report
        for number in range(left.attachments):
            digest = hashlib.sha256(content_of(number)).hexdigest()
            assert (await storage.attachments.get("s", digest)).content == content_of(number)
        for name, operation in OPERATIONS.items():
            if left.attachments or name == "create":
                await operation(storage, left.attachments)
