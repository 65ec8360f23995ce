"""Forms: their fields, and the token without which a form is refused.

The token is in a cookie and in every form. Another site can neither read the cookie nor set it, so it cannot make a
form whose token equals it. Several processes can serve one console, because none of them keeps the tokens.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lash.errors import InvalidInput
from lash.model.value import JSON

COOKIE: Final = "lash_form"
FIELD: Final = "form_token"
BACK: Final = "back"
"""The field with the address of the page to which an act returns."""
PLACEHOLDER: Final = f"token-{secrets.token_hex(16)}"
"""Stands for the token in HTML that several visitors share; `personal` replaces it."""
FORM_KEY: Final = f"key-{secrets.token_hex(16)}"
"""Stands for the idempotency key of a form: the same form sent twice is one act."""
_MOST_FIELDS: Final = 100
_TOKEN_BYTES: Final = 24


def token_of(request: Request) -> str:
    """Return the visitor's token: that of the cookie, or a new one."""
    known = request.cookies.get(COOKIE, "")
    return known if known.isascii() and len(known) == _TOKEN_BYTES * 2 else secrets.token_hex(_TOKEN_BYTES)


def keep_token(response: Response, request: Request, token: str) -> None:
    """Give the visitor its token, unless it has it."""
    if request.cookies.get(COOKIE) != token:
        secure = request.url.scheme == "https"
        path = request.scope.get("root_path", "") or "/"
        response.set_cookie(COOKIE, token, path=path, httponly=True, samesite="strict", secure=secure)


def personal(html: str, token: str) -> str:
    """Return HTML with the visitor's token and a fresh key in its forms."""
    return html.replace(PLACEHOLDER, token).replace(FORM_KEY, f"console-{secrets.token_hex(12)}")


async def fields_of(request: Request) -> Mapping[str, str] | None:
    """Return the fields of a form; None if it lacks the token, or is not a form."""
    body = await request.body()
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return None
    fields = dict(pairs)
    token = request.cookies.get(COOKIE, "")
    given = fields.pop(FIELD, "")
    return fields if token and hmac.compare_digest(token.encode(), given.encode()) else None


def json_of(text: str, name: str) -> JSON:
    """Return a field that is written as JSON; an empty one is null."""
    try:
        value: JSON = msgspec.json.decode(text or "null")
    except msgspec.DecodeError as error:
        raise InvalidInput(f"expected JSON for {name}, got {text[:60]!r} ({error}); put a text in quotes") from None
    return value
