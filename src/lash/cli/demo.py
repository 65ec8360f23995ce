"""``lash demo``: the promise, shown."""

from __future__ import annotations

from lash.cli import exits
from lash.cli.command import command
from lash.cli.exits import CommandFailed
from lash.cli.shell import Shell


@command("demo", "lash demo")
def demo(shell: Shell) -> None:
    """Kill a worker in the middle of a turn, and see that another goes on: nothing lost, nothing repeated.

    It takes some seconds, on a file that is removed again or on the storage that --url names; LASH_URL is not used.
    Every claim is checked before it is printed. Ends with code 1 if one is false.
    """
    from lash.demo.stage import run

    if run(shell.given_url) != 0:
        raise CommandFailed(exits.ERROR, "a claim of the demonstration is false")
