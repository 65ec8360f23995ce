"""Records are described before threads read them: msgspec crashes where two threads meet a new one at once.

The crash itself was seen by a test of workers that were killed at random, in two of six runs before this was so.
"""

from __future__ import annotations

import msgspec

import lash
from lash.base import codec


async def test_opening_a_storage_describes_every_record() -> None:
    """Whatever a store reads or a plan makes is described once a storage is open; doing it again costs nothing."""
    async with await lash.open("sqlite://"):
        known = {shape for shape in codec._below(msgspec.Struct) if shape.__module__.startswith("lash.")}
        assert known <= codec._described
        assert {lash.model.Node, lash.ProcessRecord, lash.EffectRecord} <= codec._described
