"""Time limits whose errors name what took too long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def time_limit(seconds: float | None, what: str) -> AsyncIterator[None]:
    """Cancel the body after so many seconds, if any, and raise TimeoutError with a text that names it and the limit."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if seconds is not None and limit.expired():
            raise TimeoutError(f"{what} took longer than {seconds:g} s") from error
        raise
