"""Existing databases of frameworks, read into a lash storage: ``lash import FRAMEWORK DATABASE``.

`import_database` is the part that all frameworks share: the snapshot that is read, sessions that appear once, the
progress, the dry run, and the report. What a framework's tables mean is known by its reader, a class that implements
`FrameworkReader`. To add a reader:

1. Write a class that has ``framework``, ``tables``, ``recognised``, ``count`` and ``found``: in
   ``lash/adapters/importing/FRAMEWORK.py`` if it works without the framework, else in
   ``lash/adapters/FRAMEWORK/importing.py``. It writes what the adapter would have written; the part that both need is
   in `lash.adapters.formats`. ``found`` reads rows with `Source.rows` and yields a `FoundSession` for each session,
   and a `FoundRecords` for what belongs to no session. Both consist of pieces: new nodes, records, a checkpoint, and
   how many things of theirs (messages, events, ...) a piece holds.
2. A row that it cannot map goes into the piece as a `RawRow` with the reason. It is stored in the collection
   ``import.raw``, so nothing is lost. A table without a counterpart in lash is kept in the same way, row by row.
3. Add its name to ``READERS`` in `lash.adapters.importing.readers`, and a test to ``tests/adapters/FRAMEWORK`` that
   fills a database with the framework's own storage, imports it, and compares what both return.
"""

from lash.adapters.importing.found import Found, FoundPart, FoundRecords, FoundSession, FrameworkReader, RawRow
from lash.adapters.importing.report import ImportReport, KeptRaw, NotImported
from lash.adapters.importing.run import import_database
from lash.adapters.importing.source import Row, Source, open_source

__all__ = [
    "Found",
    "FoundPart",
    "FoundRecords",
    "FoundSession",
    "FrameworkReader",
    "ImportReport",
    "KeptRaw",
    "NotImported",
    "RawRow",
    "Row",
    "Source",
    "import_database",
    "open_source",
]
