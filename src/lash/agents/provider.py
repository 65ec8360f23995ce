"""What the adapters for providers share: clients, errors, schemas and files."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from lash.agents.errors import ModelError, ModelTimedOut, ModelUnavailable, RateLimited, RequestRefused
from lash.model.session.message import Part
from lash.model.value import JSONObject

C = TypeVar("C")

_TIMEOUT: Final = 408
_CONFLICT: Final = 409
_TOO_MANY: Final = 429
_SERVER: Final = 500
_QUOTA: Final = "insufficient_quota"
"""OpenAI's code for an account without credit, which has the status of a rate limit."""


class ClientErrors(NamedTuple):
    """The classes of errors of a client library."""

    timeout: type[Exception]
    connection: type[Exception]
    status: type[Exception]
    any: type[Exception]


class Clients(Generic[C]):
    """A client for each event loop that uses a model, made when it is first needed, or the one that was given."""

    def __init__(self, given: C | None, make: Callable[[], C]) -> None:
        self._given = given
        self._make = make
        self._made: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, C] = weakref.WeakKeyDictionary()

    async def get(self) -> C:
        """Return the client for the running loop."""
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            # In a thread: it reads certificates, and the loop keeps the leases.
            made = await asyncio.to_thread(self._make)
            self._made.setdefault(loop, made)
        return self._made[loop]


@contextlib.contextmanager
def translated(errors: ClientErrors) -> Iterator[None]:
    """Raise the errors of a client as those of a model, with the original as the cause."""
    try:
        yield
    except errors.any as error:
        raise model_error(error, errors) from error


def model_error(error: Exception, errors: ClientErrors) -> ModelError:
    """Return the error of a model that an error of its client stands for."""
    if isinstance(error, errors.timeout):
        return ModelTimedOut(f"the provider did not answer in time; raise the timeout of its client ({error})")
    if isinstance(error, errors.connection):
        return ModelUnavailable(f"the provider cannot be reached: {error}")
    if not isinstance(error, errors.status):
        return stream_error(getattr(error, "code", None), str(error))
    status, code = int(getattr(error, "status_code", 0)), getattr(error, "code", None)
    after = retry_after(getattr(getattr(error, "response", None), "headers", {}))
    if status == _TOO_MANY and code != _QUOTA:
        return RateLimited(f"the provider limits the requests: {error}", after)
    if status == _TIMEOUT:
        return ModelTimedOut(f"the provider took too long: {error}")
    if status >= _SERVER or status in (_CONFLICT, 200):
        # A stream that began with 200 can end with an error.
        return ModelUnavailable(f"the provider has failed: {error}", after)
    return RequestRefused(f"the provider does not accept the request: {error}")


def stream_error(code: str | None, message: str) -> ModelError:
    """Return the error that a provider sent inside a stream."""
    if code == "rate_limit_exceeded":
        return RateLimited(f"the provider limits the requests: {message}")
    return ModelUnavailable(f"the provider has failed: {code or 'no code'}: {message}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds to wait by the headers of an answer, or None if they do not say."""
    for name, divisor in (("retry-after-ms", 1_000), ("retry-after", 1)):
        with contextlib.suppress(TypeError, ValueError):
            return max(0.0, float(headers.get(name, "")) / divisor)
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    return None


def closed_schema(schema: JSONObject) -> tuple[JSONObject, bool]:
    """Return a schema whose objects take no further keys, and whether every key of every object is required."""
    strict = True

    def closed(each: Any) -> Any:  # noqa: ANN401 (any part of a schema)
        nonlocal strict
        if isinstance(each, list):
            return [closed(item) for item in each]
        if not isinstance(each, dict):
            return each
        found = {key: closed(value) for key, value in each.items()}
        if each.get("type") == "object" and isinstance(each.get("properties"), dict):
            found["additionalProperties"] = False
            strict = strict and set(each.get("required", ())) == set(each["properties"])
        elif each.get("type") == "object":
            strict = False
        return found

    return closed(schema), strict


def data_url(part: Part, content: bytes) -> str:
    """Return a file as a URL that holds it."""
    assert part.attachment is not None, "only a part with an attachment has a file"
    return f"data:{part.attachment.media_type};base64,{base64_text(content)}"


def base64_text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def file_name(part: Part) -> str:
    """Return the name of a file, as a provider shows it to the model."""
    return (part.attachment and part.attachment.label) or "file"
