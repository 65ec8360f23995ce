"""Storage URLs for display, without their secrets."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlencode, urlsplit

HIDDEN: Final = "***"
_SHORTEST_SECRET: Final = 4
_LISTEN_KEY: Final = "listen_url"
_SECRET_KEYS: Final = frozenset({"password", "sslpassword"})
_IN_AUTHORITY: Final = re.compile(r"(?P<before>//[^/@\s:]*:)[^\s]*(?=@)")
_IN_QUERY: Final = re.compile(r"(?P<before>(?:ssl)?password=)[^&\s'\"]*")
_NESTED: Final = re.compile(rf"(?P<before>{_LISTEN_KEY}=)(?P<url>[^&\s'\"]*)")


def is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def sqlite_path(url: str) -> str | None:
    """Return the file of a sqlite URL; None for one in memory."""
    path = unquote(urlsplit(url).path.removeprefix("/"))
    return None if path in ("", ":memory:") else path


def redacted(url: str) -> str:
    """Return the URL with its passwords hidden, and those of the URL inside it."""
    shown, end = "", 0
    for nested in _NESTED.finditer(url):
        shown += _hide(url[end : nested.start()]) + nested["before"] + _hide(unquote(nested["url"]))
        end = nested.end()
    return shown + _hide(url[end:])


def _hide(url: str) -> str:
    hidden = _IN_AUTHORITY.sub(rf"\g<before>{HIDDEN}", url)
    return _IN_QUERY.sub(rf"\g<before>{HIDDEN}", hidden)


def without_password(dsn: str) -> str:
    """Return a PostgreSQL URL that other programs take, without its passwords."""
    parts = urlsplit(dsn)
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    rest = urlencode([(key, value) for key, value in parse_qsl(parts.query) if key not in _SECRET_KEYS])
    return f"{parts.scheme}://{name + '@' if name else ''}{host}{parts.path}{'?' + rest if rest else ''}"


def scrub(text: str, url: str | None) -> str:
    """Return a text that may quote the URL, or parts of it, with its secrets hidden."""
    if url is None:
        return text
    hidden = text.replace(url, redacted(url))
    for secret in sorted(_secrets(url), key=len, reverse=True):
        hidden = hidden.replace(secret, HIDDEN)
    return redacted(hidden)


def _secrets(url: str) -> set[str]:
    """Return the secrets of a URL, in every form in which a message may quote them, but for very short ones."""
    found: set[str] = set()
    try:
        parts = urlsplit(url)
        found.add(parts.password or "")
        for key, value in parse_qsl(parts.query):
            if key in _SECRET_KEYS:
                found.add(value)
            elif key == _LISTEN_KEY:
                found.add(urlsplit(value).password or "")
                found.update(secret for name, secret in parse_qsl(urlsplit(value).query) if name in _SECRET_KEYS)
    except ValueError:
        pass
    # A malformed URL, such as one with an @ in its password, still has its secret in this place.
    found.add(url.partition("://")[2].rpartition("@")[0].partition(":")[2])
    forms = {form for secret in found for form in (secret, unquote(secret), quote(secret), quote_plus(secret))}
    return {form for form in forms if len(form) >= _SHORTEST_SECRET}
