"""Passwords from a function of the caller, for tokens that expire."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from lash.errors import ConfigError, LashError, StoreUnavailable

if TYPE_CHECKING:
    from lash.postgres.engine.options import PostgresOptions

Password: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns the password for the next connection, at once or when it is awaited."""


def driver_password(options: PostgresOptions) -> Callable[[], Awaitable[str]] | None:
    """Return what the driver calls for each new connection; None leaves the password to the URL.

    An error of the caller's function becomes `StoreUnavailable`: a service that issues tokens may be away, as the
    server may be. It is not shown, because it may have the password in it; it is the cause.
    """
    given = options.password
    return None if given is None else lambda: _asked(given, options.address)


async def _asked(given: Password, address: str) -> str:
    try:
        answer = given()
        password = await answer if inspect.isawaitable(answer) else answer
    except LashError:
        raise
    except Exception as error:
        raise StoreUnavailable(
            f"connecting to {address}: the password function raised {type(error).__name__}"
        ) from error
    if not isinstance(password, str):
        raise ConfigError(f"expected the password function to return text, got {type(password).__name__}")
    return password
