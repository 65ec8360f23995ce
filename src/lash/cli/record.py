"""``lash records``: small values under collections and keys."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits, pages
from lash.cli.command import Group, command, limited
from lash.cli.exits import CommandFailed
from lash.cli.ids import SESSION
from lash.cli.output import json_line
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age

if TYPE_CHECKING:
    from lash.model.record import Record
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("KEY", stretch=True),
    Column("VERSION", right=True),
    Column("UPDATED", right=True),
    Column("EXPIRES", right=True),
    Column("INDEX", stretch=True),
    Column("VALUE", stretch=True),
)


@click.group(cls=Group)
def records() -> None:
    """Show records: small values under collections and keys, of the storage or of a session."""


@command(
    "ls",
    "lash records ls",
    "lash records ls profiles --where team=red",
    "lash records ls drafts --session support-42 --prefix 2026- --reverse --json",
    group=records,
    names=True,
)
@click.argument("collection", metavar="[COLLECTION]", required=False)
@click.option(
    "--session", "session_id", metavar="SESSION", type=SESSION, help="Records of this session, not of the storage."
)
@click.option("--prefix", default="", help="Only keys that start with this.")
@click.option("--where", metavar="NAME=VALUE", multiple=True, help="Only records with this index field; repeatable.")
@click.option("--reverse", is_flag=True, help="From the last key to the first.")
@limited
async def list_records(
    shell: Shell,
    collection: str | None,
    session_id: str | None,
    prefix: str,
    where: tuple[str, ...],
    reverse: bool,  # noqa: FBT001 (click's)
    limit: int,
    everything: bool,  # noqa: FBT001 (click's)
) -> None:
    """List the records of a collection by key; without a collection, the names of all collections."""
    fields = _fields(where)
    async with shell.storage() as storage:
        session_id = await SESSION.match_given(storage, session_id)
        if collection is None:
            names = await storage.records.collections(session_id=session_id)
            columns = (Column("COLLECTION", stretch=True),)
            shell.table(
                columns,
                names,
                lambda name: (name,),
                nothing="no records; a program stores them with storage.records.put(...)",
                name=str,
            )
            return
        fetch = _pages(storage, collection, session_id, prefix, fields, reverse=reverse)
        found = await pages.first(fetch, shell, limit, everything=everything)
    shell.table(_COLUMNS, found, _row, nothing="no records", value=_json, name=lambda each: each.key)


@command("get", "lash records get profiles ann", "lash records get drafts 1 --session support-42 --json", group=records)
@click.argument("collection", metavar="COLLECTION")
@click.argument("key", metavar="KEY")
@click.option(
    "--session", "session_id", metavar="SESSION", type=SESSION, help="A record of this session, not of the storage."
)
async def get_record(shell: Shell, collection: str, key: str, session_id: str | None) -> None:
    """Show the value of a record as JSON; with --json, the whole record.

    Bytes are shown in base64. Exits with code 3 if the record does not exist.
    """
    async with shell.storage() as storage:
        session_id = await SESSION.match_given(storage, session_id)
        record = await storage.records.get(collection, key, session_id=session_id)
    if record is None:
        raise CommandFailed(exits.NOT_FOUND, f"no record {key!r} in collection {collection!r}")
    shell.value(_json(record) if shell.json else _shown(record))


def _fields(where: tuple[str, ...]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for each in where:
        name, equals, value = each.partition("=")
        if not equals:
            raise click.UsageError(f"expected --where NAME=VALUE, got {each!r}")
        fields[name] = value
    return fields


def _pages(
    storage: Storage, collection: str, session_id: str | None, prefix: str, fields: dict[str, str], *, reverse: bool
) -> pages.Fetch[Record]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[Record, ...], str | None]:
        page = await storage.records.list(
            collection,
            session_id=session_id,
            prefix=prefix,
            where=fields,
            after=cursor,
            limit=limit,
            reverse=reverse,
        )
        return page, page[-1].key if len(page) == limit else None

    return fetch


def _row(record: Record) -> tuple[str, ...]:
    index = " ".join(f"{name}={value}" for name, value in record.index.items())
    expires = "" if record.expires_at_ms is None else age(record.expires_at_ms)
    return record.key, str(record.version), age(record.updated_at_ms), expires, index, json_line(_shown(record))


def _shown(record: Record) -> object:
    """Return the value as JSON; bytes in base64."""
    value = record.value
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _json(record: Record) -> dict[str, object]:
    """Return all fields of a record; ``value`` has JSON, ``base64`` bytes."""
    value = record.value
    content = {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else {"value": value}
    return {
        "collection": record.collection,
        "key": record.key,
        "session_id": record.session_id,
        **content,
        "version": record.version,
        "index": record.index,
        "expires_at_ms": record.expires_at_ms,
        "created_at_ms": record.created_at_ms,
        "updated_at_ms": record.updated_at_ms,
    }
