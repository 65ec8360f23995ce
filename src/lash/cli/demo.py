"""``lash demo``: show crash recovery."""

from __future__ import annotations

import click

from lash.cli import exits
from lash.cli.command import command
from lash.cli.exits import CommandFailed
from lash.cli.shell import Shell


@command("demo", "lash demo")
@click.option("--web", is_flag=True, help="Show it in a browser too, live; Ctrl-C ends it.")
def demo(shell: Shell, web: bool) -> None:  # noqa: FBT001 (click's)
    """Kill a worker in the middle of a turn; another takes over, and nothing is lost or repeated.

    Takes a few seconds on a temporary file, or on the storage named by --url; LASH_URL is not used.
    Every claim is checked before it is printed. Exits with code 1 if a claim does not hold.
    """
    from lash.demo.stage import run

    if run(shell.given_url, web=web) != 0:
        raise CommandFailed(exits.ERROR, "a promise of the demo does not hold")
