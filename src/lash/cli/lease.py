"""``lash leases``: which worker holds what, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lash.cli import pages
from lash.cli.command import Group, command, limited
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, plain

if TYPE_CHECKING:
    from lash.model.lease import Lease
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("KIND"),
    Column("ID", stretch=True),
    Column("OWNER", stretch=True),
    Column("PID", right=True),
    Column("FENCING", right=True),
    Column("HELD", right=True),
    Column("EXPIRES", right=True),
)
_KINDS: Final = ("session", "process")
"""The values of `lash.model.lease.ResourceKind`, which help and completion need before it is imported."""


@click.group(cls=Group)
def leases() -> None:
    """List live leases."""


@command("ls", "lash leases ls", "lash leases ls --kind process --json", group=leases, names=True)
@click.option("--kind", type=click.Choice(_KINDS), help="Only leases of sessions, or of processes.")
@limited
async def list_leases(shell: Shell, kind: str | None, limit: int, everything: bool) -> None:  # noqa: FBT001 (click's)
    """List live leases of sessions and processes, the one held for longest first.

    A lease that is not renewed before it expires is free for other workers.
    """
    async with shell.storage() as storage:
        found = await pages.first(_lease_pages(storage, kind), shell, limit, everything=everything)
    shell.table(_COLUMNS, found, _row, nothing="no live leases", value=_fields, name=lambda each: each.resource.id)


def _lease_pages(storage: Storage, kind: str | None) -> pages.Fetch[Lease]:
    from lash.model.lease import ResourceKind

    wanted = None if kind is None else ResourceKind(kind)

    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[Lease, ...], str | None]:
        page = await storage.leases.live(wanted, limit=limit, cursor=cursor)
        return page.leases, page.next_cursor

    return fetch


def _row(lease: Lease) -> tuple[str, ...]:
    process = lease.owner.process
    return (
        lease.resource.kind.value,
        lease.resource.id,
        lease.owner.owner_id,
        "-" if process is None else str(process.pid),
        str(lease.fencing),
        age(lease.claimed_at_ms),
        age(lease.expires_at_ms),
    )


def _fields(lease: Lease) -> object:
    # The token is left out: with it a reader could act as the worker.
    return {
        "kind": lease.resource.kind.value,
        "id": lease.resource.id,
        "owner": plain(lease.owner),
        "fencing": lease.fencing,
        "claimed_at_ms": lease.claimed_at_ms,
        "expires_at_ms": lease.expires_at_ms,
    }
