"""Records are described before threads read them: msgspec crashes if two threads first use one at once.

Without this, a test that kills workers at random crashed in two of six runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

import lash
from lash.base import codec


def _below(shape: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in shape.__subclasses__():
        yield each
        yield from _below(each)


async def test_opening_a_storage_describes_every_record() -> None:
    """Every record that a store reads or a plan makes is described once a storage is open; doing so again is free."""
    async with await lash.open("sqlite://"):
        known = {shape for shape in _below(msgspec.Struct) if shape.__module__.startswith("lash.")}
        assert known <= codec._described
        assert {lash.model.Node, lash.ProcessRecord, lash.EffectRecord} <= codec._described
