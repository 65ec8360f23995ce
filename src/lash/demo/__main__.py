"""``python -m lash.demo``, or ``python -m lash.demo --url postgresql://user@host/database``."""

from __future__ import annotations

import argparse
import sys

import lash
from lash.demo.stage import run


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration and return the exit code: 1 if a claim is false."""
    parser = argparse.ArgumentParser(
        prog="python -m lash.demo", description="Kill a worker in mid-turn, and see that nothing is lost or repeated."
    )
    parser.add_argument("--url", help="the storage to use; by default a file that is removed again")
    try:
        return run(parser.parse_args(arguments).url)
    except lash.LashError as error:
        print(f"lash: {error}", file=sys.stderr)
        return 1
    except TimeoutError:
        print("lash: the demonstration took too long; the machine may be busy", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
