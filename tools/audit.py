"""Known vulnerabilities of what is installed: ``python -m tools.audit``, as ``make audit`` does.

Asks PyPI, which publishes the advisories of the Python Packaging Advisory Database with each release; pip-audit asks
the same place. Before the answers are believed, a release that is known to be vulnerable is asked for: a mirror that
carries no advisories, or none of single releases, would find nothing wrong with anything. A machine from which that
cannot be asked has audited nothing: this is said loudly, and is no failure unless ``--strict`` demands an answer.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import importlib.metadata
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

_TIMEOUT_S: Final = 20.0
_AT_ONCE: Final = 8
_NOT_PUBLISHED: Final = 404

CONTROL: Final = ("requests", "2.19.0")
"""A release whose vulnerability (CVE-2018-18074) has been known for years."""

ACCEPTED: Final[dict[str, str]] = {}
"""Advisories that do not concern us, each with the reason why."""


class Unreachable(Exception):
    """PyPI did not answer, or what answered in its place knows no advisories."""


class Advisory(msgspec.Struct, frozen=True, order=True):
    """A known vulnerability of a release."""

    package: str
    version: str
    id: str
    fixed_in: tuple[str, ...]

    def __str__(self) -> str:
        cure = f"mended in {', '.join(self.fixed_in)}" if self.fixed_in else "no release mends it yet"
        return f"{self.package} {self.version}: {self.id} ({cure})"


class _Known(msgspec.Struct):
    id: str
    aliases: list[str] = []
    fixed_in: list[str] = []
    withdrawn: str | None = None


class _Answer(msgspec.Struct):
    vulnerabilities: list[_Known] = []


Fetch = Callable[[str], bytes | None]
"""Returns what a URL says, None where there is nothing; raises Unreachable."""


def fetch(url: str) -> bytes | None:
    """Ask PyPI."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 (only ever https://pypi.org)
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        if error.code == _NOT_PUBLISHED:
            return None
        raise Unreachable(f"{url}: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{url}: {error}") from error


def installed() -> list[tuple[str, str]]:
    """Return the name and version of everything in this environment but lash itself."""
    found = {(each.metadata["Name"], each.version) for each in importlib.metadata.distributions()}
    return sorted((name, version) for name, version in found if name != "lash-runtime")


def advisories(package: str, version: str, ask: Fetch = fetch) -> list[Advisory]:
    """Return the known vulnerabilities of a release; what is not on PyPI has none that anybody could know."""
    content = ask(f"https://pypi.org/pypi/{quote(package, safe='')}/{quote(version, safe='')}/json")
    known = [] if content is None else msgspec.json.decode(content, type=_Answer).vulnerabilities
    return [
        Advisory(package, version, each.id, tuple(each.fixed_in))
        for each in known
        if each.withdrawn is None and not {each.id, *each.aliases} & ACCEPTED.keys()
    ]


def audit(packages: Iterable[tuple[str, str]], ask: Fetch = fetch) -> list[Advisory]:
    """Return what is known about all of them, or raise Unreachable if what answers knows nothing."""
    if not advisories(*CONTROL, ask):
        raise Unreachable(f"no advisory is known for {' '.join(CONTROL)}, which has one: this is no full PyPI")
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda each: advisories(each[0], each[1], ask), packages)
        return sorted(advisory for each in found for advisory in each)


def main(arguments: Sequence[str] | None = None, ask: Fetch = fetch) -> int:
    """Name the known vulnerabilities of what is installed; 1 if there is one, 2 if strict and nobody could say."""
    parser = argparse.ArgumentParser(prog="python -m tools.audit", description=main.__doc__)
    parser.add_argument("--strict", action="store_true", help="an audit that could not be made is a failure")
    options = parser.parse_args(arguments)
    packages = installed()
    try:
        found = audit(packages, ask)
    except (Unreachable, msgspec.DecodeError) as error:
        print(
            f"{'!' * 20} NOTHING WAS AUDITED: the advisories cannot be asked for from here {'!' * 20}\n{error}",
            file=sys.stderr,
        )
        return 2 if options.strict else 0
    for advisory in found:
        print(advisory)
    print(f"{len(packages)} packages audited, {len(found)} known vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
