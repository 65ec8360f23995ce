"""The root command with its groups and single commands."""

from __future__ import annotations

from typing import Final

import click

from lash.cli.command import Group

_COMMANDS: Final = {
    "init": "lash.cli.maintenance:init",
    "chat": "lash.cli.chat:chat",
    "ask": "lash.cli.ask:ask",
    "start": "lash.cli.start:start",
    "watch": "lash.cli.ask:watch",
    "sessions": "lash.cli.session:sessions",
    "ps": "lash.cli.process:ps",
    "program": "lash.cli.program:program",
    "logs": "lash.cli.event:logs",
    "signal": "lash.cli.event:signal",
    "cancel": "lash.cli.process:cancel",
    "rerun": "lash.cli.process:rerun",
    "queue": "lash.cli.queue:queue",
    "triggers": "lash.cli.trigger:triggers",
    "schedules": "lash.cli.schedule:schedules",
    "effects": "lash.cli.effect:effects",
    "waits": "lash.cli.wait:waits",
    "records": "lash.cli.record:records",
    "leases": "lash.cli.lease:leases",
    "limits": "lash.cli.limit:limits",
    "acts": "lash.cli.act:acts",
    "usage": "lash.cli.usage:usage",
    "counts": "lash.cli.counts:counts",
    "lang": "lash.cli.lang:lang",
    "db": "lash.cli.maintenance:db",
    "import": "lash.cli.framework:import_",
    "web": "lash.cli.web:web",
    "mcp": "lash.cli.mcp:mcp",
    "worker": "lash.cli.work:worker",
    "workers": "lash.cli.workers:workers",
    "versions": "lash.cli.versions:versions",
    "doctor": "lash.cli.doctor:doctor",
    "demo": "lash.cli.demo:demo",
    "completion": "lash.cli.completion:completion",
}


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 (click's)
    if not value or context.resilient_parsing:
        return
    from lash import __version__

    click.echo(f"lash {__version__}")
    context.exit()


class _Root(Group):
    """The root command.

    ``lash worker drain WORKER`` is short for ``lash workers drain WORKER``, and ``lash help X`` for ``lash X --help``.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "help":
            args = [*args[1:], "--help"]
        if args[:2] == ["worker", "drain"] and args[2:]:
            args = ["workers", *args[1:]]
        return super().resolve_command(ctx, args)


@click.group(cls=_Root, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
def root() -> None:
    """Inspect and maintain the durable state of AI agents: sessions, processes, queues and the storage itself.

    The storage is named by --url or LASH_URL. Every list is a table or, with -o json, JSON lines;
    -q writes only the ids, so that `lash ps -q | xargs -n 1 lash cancel` works.
    """
