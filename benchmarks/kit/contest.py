"""Measures several contenders in alternation. A contender that fails has no figure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from benchmarks.kit.measure import Round, by_turns
from benchmarks.kit.peer import Contender, PeerFailed
from benchmarks.kit.report import Row
from benchmarks.kit.workspace import Workspace


@contextlib.contextmanager
def fresh(workspace: Workspace, backend: str) -> Iterator[str]:
    """Give the URL of an empty database."""
    if backend == "postgres":
        with workspace.database() as url:
            yield url
    else:
        with workspace.file() as path:
            yield f"sqlite:///{path}"


class _Side:
    """Measures until the first failure; a failure of lash is an error."""

    def __init__(self, contender: Contender, side: Round) -> None:
        self._contender = contender
        self._side = side
        self.failed = False

    def __call__(self, number: int) -> float:
        if self.failed:
            return float("nan")
        try:
            return self._side(number)
        except PeerFailed as failure:
            if self._contender.program == "lash":
                raise
            self.failed = True
            print(f"{self._contender.name} on {self._contender.backend} failed, and has no figure: {failure}"[:2000])
            return float("nan")


def measure(sides: Mapping[Contender, Round], rounds: int, *, unit: str, case: str) -> list[Row]:
    """Return the figures of all contenders that did not fail; each case starts with its database."""
    guarded = [_Side(contender, side) for contender, side in sides.items()]
    samples = by_turns(guarded, rounds)
    return [
        Row(contender=contender.name, case=f"{contender.backend}, {case}", unit=unit, samples=figures)
        for contender, side, figures in zip(sides, guarded, samples, strict=True)
        if not side.failed
    ]
