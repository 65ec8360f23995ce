"""``lash start module:app NAME``: start a durable process."""

from __future__ import annotations

import click

from lash.cli import exits
from lash.cli.command import command, json_argument, seconds
from lash.cli.exits import CommandFailed
from lash.cli.shell import Shell


@command(
    "start",
    "lash start shop.agents:app digest",
    """lash start shop.agents:app refund '{"order": 7}' --id refund-7""",
    storage=False,
)
@click.argument("target", metavar="MODULE:APP")
@click.argument("name", metavar="PROCESS")
@click.argument("arguments", metavar="[JSON]", default="{}")
@click.option(
    "--id", "process_id", metavar="ID", help="The id of the process; starting it again under its id does nothing."
)
@click.option("--wake", "session_id", metavar="SESSION", help="The session that the process wakes.")
@click.option("--wait", is_flag=True, help="Wait for the result and print it; a worker must be running.")
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", callback=seconds, help="How long to wait.")
async def start(
    shell: Shell,
    target: str,
    name: str,
    arguments: str,
    process_id: str | None,
    session_id: str | None,
    wait: bool,  # noqa: FBT001 (click's)
    timeout_s: float | None,
) -> None:
    """Start a process of an application under its name, and print its id; a worker runs it.

    JSON is an object with its arguments, - reads it from standard input. The storage is the application's own.
    """
    from lash.cli.worker import load_app

    given = json_argument(arguments, "the arguments")
    if not isinstance(given, dict):
        raise CommandFailed(exits.USAGE, f"expected the arguments as a JSON object, got {arguments}")
    app = load_app(target)
    app.configure(worker=False)
    async with app:
        starter = app.starting(process_id=process_id, wake=session_id)
        handle = await starter.start(app.find_process(name), **given)
        if not wait:
            shell.line(handle.process_id)
            return
        shell.note(f"process {handle.process_id}")
        shell.value(await handle.result(timeout_s=timeout_s))
