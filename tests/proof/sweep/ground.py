"""Setup of every process of a sweep, so that each run of an operation is equal, and quick."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import lash.postgres.engine.database
import lash.postgres.storage
import lash.sqlite.schema
import lash.sqlite.storage
from lash.sqlkit.migrations import load_migrations
from lash.sqlkit.queries import load_queries

_queries = functools.cache(load_queries)
_migrations = functools.cache(load_migrations)


@contextmanager
def steady() -> Iterator[None]:
    """Take away chance, and what thousands of openings would do again and again: migrations are not swept here."""
    with pytest.MonkeyPatch.context() as patch:
        # The secret of a storage is made by its first wait; keys are signed with it.
        patch.setattr(secrets, "token_bytes", lambda count: b"s" * count)
        patch.setattr(lash.postgres.engine.database, "_LONGEST_PAUSE_S", 0.001)
        patch.setattr(lash.postgres.storage, "load_queries", _queries)
        patch.setattr(lash.postgres.storage, "prepare_schema", _prepare_nothing)
        patch.setattr(lash.sqlite.storage, "load_queries", _queries)
        patch.setattr(lash.sqlite.schema, "load_migrations", _migrations)
        patch.setattr(lash.sqlite.schema.SchemaKeeper, "_verify", lambda _keeper, _connection: None)
        yield


async def _prepare_nothing(_database: object, *, migrate: bool) -> None:
    """Leave the schema as it is; the storage was opened with the usual options."""
    assert migrate
