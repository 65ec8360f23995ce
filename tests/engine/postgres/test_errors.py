"""No exception of the driver escapes; each becomes the error of lash with the right advice."""

from __future__ import annotations

import uuid
from urllib.parse import urlsplit

import asyncpg
import pytest

from lash.errors import (
    ConfigError,
    CorruptData,
    InvalidInput,
    LashError,
    SchemaMismatch,
    StorageFailure,
    StoreError,
    StoreUnavailable,
)
from lash.postgres.engine.pool import check_server
from lash.sqlkit.queries import in_schema
from lash.testing.postgres_server import PostgresServer
from tests.backends import run_sql
from tests.engine.postgres.kit import CREATE_FAIL, Item, Text, opened, raw_connection, with_items

CODES = [
    ("53100", StorageFailure),
    ("25006", StorageFailure),
    ("0A000", StorageFailure),
    ("42501", StorageFailure),
    ("58030", StorageFailure),
    ("42P01", SchemaMismatch),
    ("42703", SchemaMismatch),
    ("42883", SchemaMismatch),
    ("22003", InvalidInput),
    ("22021", InvalidInput),
    ("22P05", InvalidInput),
    ("54000", InvalidInput),
    ("23505", CorruptData),
    ("23503", CorruptData),
    ("XX001", CorruptData),
    ("53200", StoreUnavailable),
    ("57014", StoreUnavailable),
    ("40002", StoreUnavailable),
    ("P0001", StoreError),
]


def at_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


@pytest.mark.parametrize(("code", "expected"), CODES)
async def test_each_code_of_the_server_becomes_its_error(
    postgres_schema_url: str, code: str, expected: type[LashError]
) -> None:
    """The class is exact, the cause is kept, the text names the query and the code."""
    async with opened(postgres_schema_url) as database:
        async with database.transaction() as transaction:
            await transaction.execute_script(in_schema(CREATE_FAIL, database.options.schema))
        with pytest.raises(LashError) as caught:
            await database.write_one(Item, "raise", code, repeatable=True)
    assert type(caught.value) is expected
    assert isinstance(caught.value.__cause__, asyncpg.PostgresError)
    assert "'raise'" in str(caught.value)
    assert code in str(caught.value)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("no_table", (), SchemaMismatch),
        ("no_column", (), SchemaMismatch),
        ("no_function", (), SchemaMismatch),
        ("no_schema", (), SchemaMismatch),
        ("syntax", (), StoreError),
        ("echo", ("nul \0 inside",), InvalidInput),
        ("echo", ("lone \ud800 surrogate",), InvalidInput),
        ("echo", (), StoreError),
        ("number", (2**63,), InvalidInput),
        ("number", ("text",), InvalidInput),
        ("overflow", (1,), InvalidInput),
        ("insert", (1, 0), CorruptData),
    ],
)
async def test_real_mistakes_become_our_errors(
    postgres_schema_url: str, name: str, args: tuple[object, ...], expected: type[LashError]
) -> None:
    """Errors of the server and of the driver's own checks are both translated, and the pool stays usable."""
    async with opened(postgres_schema_url, max_size=1) as database:
        await with_items(database, 1)
        with pytest.raises(LashError) as caught:
            await database.write_one(Item, name, *args, repeatable=False)
        assert await database.read_one(Item, "one") == Item(1, 2)
    assert type(caught.value) is expected


async def test_a_row_of_another_shape_is_corrupt_data_and_names_the_query(postgres_schema_url: str) -> None:
    """A value that does not fit is reported, never coerced or dropped."""
    async with opened(postgres_schema_url) as database:
        with pytest.raises(CorruptData, match="text_for_number"):
            await database.read_one(Item, "text_for_number")
        with pytest.raises(CorruptData, match="text_for_number"):
            await database.read_all(Item, "text_for_number")
        assert await database.read_one(Text, "echo", "fits") == Text(0, "fits")


async def test_a_read_without_rows_is_nothing(postgres_schema_url: str) -> None:
    """Absence is ``None`` or an empty list."""
    async with opened(postgres_schema_url) as database:
        await with_items(database)
        assert await database.read_one(Item, "get", 1) is None
        assert await database.read_all(Item, "list") == []


async def test_a_refused_login_is_a_mistake_of_configuration_and_hides_the_password(
    own_server: PostgresServer,
) -> None:
    """Neither the text nor the chain of causes shows the password."""
    user_and_password, _, host = own_server.url.removeprefix("postgresql://").partition("@")
    wrong = user_and_password + "wrong"
    with pytest.raises(ConfigError) as caught:
        async with opened(f"postgresql://{wrong}@{host}"):
            pass
    shown = f"{caught.value!r} {caught.value.__cause__!r}"
    assert wrong.partition(":")[2] not in shown
    assert "28P01" in shown


async def test_an_unknown_database_is_a_mistake_of_configuration(postgres_server: PostgresServer) -> None:
    """The error names the database."""
    with pytest.raises(ConfigError, match=r"absent_database.*3D000"):
        async with opened(at_database(postgres_server.url, "absent_database")):
            pass


async def test_a_database_that_is_not_utf8_is_refused(postgres_server: PostgresServer) -> None:
    """The error names the encoding found."""
    name = f"ascii_{uuid.uuid4().hex}"
    run_sql(postgres_server.url, f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")
    try:
        with pytest.raises(ConfigError, match="SQL_ASCII"):
            async with opened(at_database(postgres_server.url, name)):
                pass
    finally:
        run_sql(postgres_server.url, f"DROP DATABASE {name} WITH (FORCE)")


def test_an_old_server_is_refused_by_version_and_a_new_one_is_not() -> None:
    """PostgreSQL 15 is the oldest; a version not yet known is accepted."""
    with pytest.raises(ConfigError, match=r"expected PostgreSQL 15 or newer, got 14 on db:5432"):
        check_server(major=14, encoding="UTF8", address="db:5432")
    for major in (15, 18, 30):
        check_server(major=major, encoding="UTF8", address="db:5432")


async def test_a_full_server_is_unavailable_after_a_few_tries(postgres_server: PostgresServer) -> None:
    """A role without a free connection is retried, then raises StoreUnavailable."""
    role = f"limited_{uuid.uuid4().hex}"
    run_sql(postgres_server.url, f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1 PASSWORD 'pw'")
    url = f"postgresql://{role}:pw@{postgres_server.url.partition('@')[2]}"
    try:
        async with raw_connection(url):
            with pytest.raises(StoreUnavailable, match="53300"):
                async with opened(url):
                    pass
        async with opened(url) as database:
            assert await database.read_one(Item, "one") == Item(1, 2)
    finally:
        run_sql(postgres_server.url, f"DROP ROLE {role}")
