"""The command ``lash``. Each subcommand is a module of its own, imported when it is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 for what went well, 1 for what failed, 2 for a wrong call."""
    given = _parser().parse_args(arguments)
    from lash.cli.worker import run

    return run(
        given.app, sessions=given.sessions, processes=given.processes, grace_s=given.grace, level=given.log_level
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lash", description="Durable state and execution for AI agents.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    worker = commands.add_parser(
        "worker",
        help="run the agents and processes of an application",
        description="Run sessions, processes, triggers, schedules and timers of an application until SIGTERM or "
        "SIGINT. Then let what runs finish, or give it back; a second signal ends at once.",
    )
    worker.add_argument("app", metavar="MODULE:APP", help="where the lash.App is, such as shop.agents:app")
    worker.add_argument("--sessions", type=_count, metavar="N", help="how many turns to run at once")
    worker.add_argument("--processes", type=_count, metavar="N", help="how many processes to run at once")
    worker.add_argument("--grace", type=_seconds, metavar="SECONDS", help="how long work may take to finish at the end")
    worker.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"), help="to stderr")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 on")
    return seconds
