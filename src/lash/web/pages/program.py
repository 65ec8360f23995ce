"""What a process runs: its engine, its program, and the source if the storage has it."""

from __future__ import annotations

import htpy as h

from lash.code.source import read_source, source_ref
from lash.model.process.process import EngineInput, ProcessRecord
from lash.web.show import block, facts, line
from lash.web.view import Visit


async def program(visit: Visit, record: ProcessRecord) -> h.Element:
    """Return the section about the program of a process; hidden for a durable function, whose code is not stored.

    It takes one read, and only for a process whose source is an artifact.
    """
    given, ref = record.registration.input, source_ref(record)
    if not isinstance(given, EngineInput) or ref is None:
        return h.section("#program", hidden=True)
    source = await read_source(visit.storage, record)
    text = "The artifact was deleted." if source is None else _numbered(visit.redact(source))
    return h.section("#program")[
        h.h2["Program"],
        facts((("engine", line(given.kind)), ("artifact", h.code[line(ref, 80)]))),
        h.pre[block(text)],
    ]


def _numbered(source: str) -> str:
    """Return the lines of a source with the numbers that errors name."""
    return "\n".join(f"{number:>4}  {each}" for number, each in enumerate(source.splitlines(), 1))
