"""A newer version of lash: opens a storage with one migration more than this one has.

``python -m tests.engine.migration.future URL STATEMENT [additive]``
"""

from __future__ import annotations

import asyncio
import sys

import lash
import lash.postgres.schema
import lash.sqlite.schema
from lash.sqlkit.migrations import Migration, last_number, load_migrations
from lash.sqlkit.queries import in_schema


async def main(url: str, statement: str, *kinds: str) -> None:
    def more(package: str, *, schema: str | None = None) -> tuple[Migration, ...]:
        known = load_migrations(package, schema=schema)
        new = Migration(len(known) + 1, "of_the_future", in_schema(statement, schema), is_additive="additive" in kinds)
        return (*known, new)

    for backend in (lash.sqlite.schema, lash.postgres.schema):
        vars(backend)["load_migrations"] = more
        vars(backend)["last_number"] = lambda package: last_number(package) + 1
    await (await lash.open(url)).close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
