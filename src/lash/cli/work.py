"""``lash worker``: the command line; `lash.cli.worker` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lash.cli.command import command, label_dict, seconds
from lash.cli.exits import OK, CommandFailed

if TYPE_CHECKING:
    from lash.cli.shell import Shell

_LEVELS: Final = ("debug", "info", "warning", "error")


@command(
    "worker",
    "lash worker shop.agents:app",
    "lash worker shop.agents:app --sessions 4 --grace 30",
    "lash worker shop.agents:app --agent support --label region=eu",
    "lash worker shop.agents:app --http 127.0.0.1:9090",
    storage=False,
)
@click.argument("target", metavar="MODULE:APP")
@click.option("--sessions", type=click.IntRange(min=0), metavar="N", help="How many turns to run at once; 0 runs none.")
@click.option(
    "--processes", type=click.IntRange(min=0), metavar="N", help="How many processes to run at once; 0 runs none."
)
@click.option(
    "--process",
    "process_names",
    multiple=True,
    metavar="NAME",
    help="Run only processes of this name; may be given several times.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="Run only turns of this agent; may be given several times.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    callback=label_dict,
    help="Run only sessions with this label, and processes that work for them; repeatable, all must match.",
)
@click.option(
    "--grace",
    type=float,
    metavar="SECONDS",
    callback=seconds,
    help="How many seconds running work may take to finish after a stop.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve /live, /ready and /metrics there, for probes and Prometheus; port 0 takes a free one.",
)
@click.option(
    "--log-level", type=click.Choice(_LEVELS), default="info", show_default=True, help="The lowest level to log."
)
def worker(
    _shell: Shell,
    target: str,
    sessions: int | None,
    processes: int | None,
    process_names: tuple[str, ...],
    agents: tuple[str, ...],
    labels: dict[str, str],
    grace: float | None,
    http: str | None,
    log_level: str,
) -> None:
    """Run the agents and processes of an application until SIGTERM or SIGINT; logs go to standard error.

    A worker for sessions only has --processes 0, one for processes only --sessions 0. With --agent, input that names no
    agent, in a session without a turn, is left to other workers. With --label, so are sessions without these labels.

    MODULE:APP is where the lash.App is, which names its storage itself. At the end, what runs may finish or is given
    back to others; a second signal ends at once.
    """
    from lash.cli.worker import run

    wanted = {
        "sessions": sessions,
        "processes": processes,
        "process_names": process_names or None,
        "agents": agents or None,
        "labels": labels or None,
        "grace_s": grace,
    }
    code = run(target, wanted, level=log_level, http=http)
    if code != OK:
        raise CommandFailed(code)
