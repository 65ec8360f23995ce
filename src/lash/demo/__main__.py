"""``python -m lash.demo``, or ``python -m lash.demo --url postgresql://user@host/database``."""

from __future__ import annotations

import argparse
import sys

import lash
from lash.demo.stage import run


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code, 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m lash.demo",
        description="Kill a worker in the middle of a turn and show that nothing is lost or repeated.",
    )
    parser.add_argument("--url", help="the storage to use (default: a temporary SQLite file)")
    parser.add_argument("--web", action="store_true", help="show it in a browser too, live; Ctrl-C ends it")
    given = parser.parse_args(arguments)
    try:
        return run(given.url, web=given.web)
    except lash.LashError as error:
        print(f"lash: {error}", file=sys.stderr)
        return 1
    except TimeoutError:
        print("lash: the demo timed out; the machine may be busy", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
