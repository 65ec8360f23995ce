"""Known vulnerabilities of installed packages: ``python -m tools.audit``, as ``make audit`` does.

Queries PyPI, which publishes the advisories of the Python Packaging Advisory Database with each release, as pip-audit
does. A release that is known to be vulnerable is queried first: a mirror without advisories would report no
vulnerability at all. If that query fails, nothing was audited: the report says so, and the exit code is 0 unless
``--strict`` is given.
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
    """PyPI did not answer, or its mirror has no advisories."""


class Advisory(msgspec.Struct, frozen=True, order=True):
    """A known vulnerability of a release."""

    package: str
    version: str
    id: str
    fixed_in: tuple[str, ...]

    def __str__(self) -> str:
        cure = f"fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "not fixed in any release yet"
        return f"{self.package} {self.version}: {self.id} ({cure})"


class _Known(msgspec.Struct):
    id: str
    aliases: list[str] = []
    fixed_in: list[str] = []
    withdrawn: str | None = None


class _Answer(msgspec.Struct):
    vulnerabilities: list[_Known] = []


Fetch = Callable[[str], bytes | None]
"""Returns the content of a URL, or None if it does not exist; raises Unreachable."""


def fetch(url: str) -> bytes | None:
    """Fetch a URL from PyPI."""
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
    """Return the known vulnerabilities of a release; a release that is not on PyPI has none."""
    content = ask(f"https://pypi.org/pypi/{quote(package, safe='')}/{quote(version, safe='')}/json")
    known = [] if content is None else msgspec.json.decode(content, type=_Answer).vulnerabilities
    return [
        Advisory(package, version, each.id, tuple(each.fixed_in))
        for each in known
        if each.withdrawn is None and not {each.id, *each.aliases} & ACCEPTED.keys()
    ]


def audit(packages: Iterable[tuple[str, str]], ask: Fetch = fetch) -> list[Advisory]:
    """Return the advisories of all packages, or raise Unreachable if the server has no advisories."""
    if not advisories(*CONTROL, ask):
        raise Unreachable(
            f"no advisory is known for {' '.join(CONTROL)}, which has one: the server is not a complete PyPI"
        )
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda each: advisories(each[0], each[1], ask), packages)
        return sorted(advisory for each in found for advisory in each)


def main(arguments: Sequence[str] | None = None, ask: Fetch = fetch) -> int:
    """Print the known vulnerabilities of installed packages; 1 if there are any, 2 if strict and not audited."""
    parser = argparse.ArgumentParser(prog="python -m tools.audit", description=main.__doc__)
    parser.add_argument("--strict", action="store_true", help="an audit that could not be made is a failure")
    options = parser.parse_args(arguments)
    packages = installed()
    try:
        found = audit(packages, ask)
    except (Unreachable, msgspec.DecodeError) as error:
        print(
            f"{'!' * 20} NOTHING WAS AUDITED: the advisories cannot be fetched from here {'!' * 20}\n{error}",
            file=sys.stderr,
        )
        return 2 if options.strict else 0
    for advisory in found:
        print(advisory)
    print(f"{len(packages)} packages audited, {len(found)} known vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
