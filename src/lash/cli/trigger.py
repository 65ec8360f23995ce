"""``lash triggers``: subscriptions that start processes for occurrences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits, pages
from lash.cli.command import Group, command, json_argument, limited
from lash.cli.exits import CommandFailed
from lash.cli.ids import SESSION, TRIGGER
from lash.cli.operator import operated
from lash.cli.owner import find_owner, owner_text, session_of
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, plural

if TYPE_CHECKING:
    from lash.model.trigger.trigger import EmitReport, TriggerDelivery, TriggerFilter, TriggerSubscription
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("KEY"),
    Column("OWNER", stretch=True),
    Column("STATE", state=True),
    Column("SOURCE TYPE"),
    Column("SOURCE KEY", stretch=True),
    Column("STARTS", stretch=True),
    Column("CREATED", right=True),
)
_DELIVERY_COLUMNS: Final = (
    Column("TRIGGER"),
    Column("STATE", state=True),
    Column("PROCESS"),
    Column("REASON", stretch=True),
)
_SESSION_OPTION: Final = click.option(
    "--session", "session_id", metavar="SESSION", type=SESSION, help="The trigger of this session."
)


@click.group(cls=Group)
def triggers() -> None:
    """List, enable and disable triggers, and emit occurrences."""


@command("ls", "lash triggers ls", "lash triggers ls --source order.paid --json", group=triggers, names=True)
@_SESSION_OPTION
@click.option("--source", "source_type", metavar="TYPE", help="Only triggers of this source type.")
@limited
async def list_triggers(
    shell: Shell,
    session_id: str | None,
    source_type: str | None,
    limit: int,
    everything: bool,  # noqa: FBT001 (click's)
) -> None:
    """List trigger subscriptions, the newest first."""
    from lash.model.trigger.trigger import TriggerFilter

    damaged: list[str] = []
    async with shell.storage() as storage:
        owner = await SESSION.match_given(storage, session_id)
        fetch = trigger_pages(storage, TriggerFilter(session_id=owner, source_type=source_type), damaged)
        found = await pages.first(fetch, shell, limit, everything=everything)
    shell.table(
        _COLUMNS,
        found,
        _row,
        nothing="no triggers; an application declares them with app.on(...) or app.cron(...)",
        name=lambda each: each.key,
    )
    if damaged:
        raise CommandFailed(exits.ERROR, f"{plural(len(damaged), 'trigger')} cannot be read: {', '.join(damaged)}")


def trigger_pages(
    storage: Storage, wanted: TriggerFilter, damaged: list[str] | None = None
) -> pages.Fetch[TriggerSubscription]:
    """Return pages of triggers; ids of unreadable ones are added to ``damaged``."""

    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[TriggerSubscription, ...], str | None]:
        page = await storage.triggers.list(wanted, limit=limit, cursor=cursor)
        if damaged is not None:
            damaged.extend(page.damaged)
        return page.subscriptions, page.next_cursor

    return fetch


def _row(subscription: TriggerSubscription) -> tuple[str, ...]:
    definition = subscription.definition
    label = definition.label or (definition.identity.label if definition.identity else None)
    return (
        subscription.key,
        owner_text(subscription.owner),
        "enabled" if subscription.enabled else "disabled",
        definition.source_type,
        definition.source_key,
        label or definition.target.kind,
        age(subscription.created_at_ms),
    )


@command(
    "emit",
    """lash triggers emit order.paid '{"order": 7}' --key order-7""",
    "lash triggers emit order.paid --key order-8 --json",
    "lash triggers emit order.paid -q | xargs -r -n 1 lash logs",
    group=triggers,
    names=True,
)
@click.argument("source_type", metavar="SOURCE_TYPE")
@click.argument("payload", metavar="[JSON]", default="null")
@click.option("--key", help="The idempotency key: the same key again starts nothing.  [default: a new one]")
@click.option("--source-key", help="The source.  [default: the one of its type]")
async def emit(shell: Shell, source_type: str, payload: str, key: str | None, source_key: str | None) -> None:
    """Emit an occurrence, and show what it started; JSON - reads the payload from standard input.

    -q writes the ids of the processes that it started. Exits with code 1 if a delivery was rejected; the occurrence is
    recorded in any case.
    """
    from lash.base.ids import new_id
    from lash.model.trigger.trigger import OccurrenceRequest

    value = json_argument(payload)
    async with shell.storage() as storage:
        report = await storage.occurrences.emit(
            OccurrenceRequest(
                source_type=source_type,
                source_key=source_key or storage.triggers.source_key(source_type),
                idempotency_key=key or new_id(),
                payload=value,
            )
        )
    show_report(shell, report)


def show_report(shell: Shell, report: EmitReport) -> None:
    """Show what an occurrence started; raise if a delivery was rejected."""
    from lash.model.trigger.trigger import DeliveryState

    if shell.json:
        shell.value(report)
    elif shell.names:
        shell.lines(each.process_id for each in report.deliveries if each.state is DeliveryState.STARTED)
    else:
        shell.line(f"occurrence {report.occurrence_id}")
        shell.table(_DELIVERY_COLUMNS, report.deliveries, _delivery_row, nothing="no trigger for this source")
    rejected = [each for each in report.deliveries if each.state is DeliveryState.REJECTED]
    if rejected:
        raise CommandFailed(exits.ERROR, f"{plural(len(rejected), 'delivery', 'deliveries')} rejected")


def _delivery_row(delivery: TriggerDelivery) -> tuple[str, ...]:
    return delivery.key, delivery.state.value, delivery.process_id, delivery.reason or ""


@command("enable", "lash triggers enable on-paid", group=triggers)
@click.argument("key", metavar="KEY", type=TRIGGER)
@_SESSION_OPTION
@operated
async def enable(shell: Shell, key: str, session_id: str | None, by: str) -> None:
    """Enable a trigger: occurrences start processes again."""
    await _switch(shell, key, session_id, by, on=True)


@command("disable", "lash triggers disable on-paid", group=triggers)
@click.argument("key", metavar="KEY", type=TRIGGER)
@_SESSION_OPTION
@operated
async def disable(shell: Shell, key: str, session_id: str | None, by: str) -> None:
    """Disable a trigger: occurrences start nothing; running processes go on."""
    await _switch(shell, key, session_id, by, on=False)


async def _switch(shell: Shell, key: str, session_id: str | None, by: str, *, on: bool) -> None:
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        known = await _found(storage, key, session_id)
        change = storage.triggers.enable if on else storage.triggers.disable
        verb = "enable-trigger" if on else "disable-trigger"
        async with acting(storage, by, verb, known.key, session_id=session_of(known.owner)):
            changed = await change(known.owner, known.key, revision=known.revision)
    shell.done(f"{known.key} is {'enabled' if on else 'disabled'}", changed)


async def _found(storage: Storage, key: str, session_id: str | None) -> TriggerSubscription:
    owner, key = await find_owner(storage, TRIGGER, key, session_id)
    known = await storage.triggers.get(owner, key)
    if known is None:
        raise CommandFailed(exits.NOT_FOUND, f"{owner_text(owner)} has no trigger {key!r}; see lash triggers ls")
    return known
