"""The official client of OpenAI."""

from __future__ import annotations

from typing import Any, Final

from lash.agents.errors import RequestRefused
from lash.agents.provider import ClientErrors, Clients
from lash.errors import ConfigError

try:
    import openai
except ImportError:
    raise ConfigError("lash.agents.openai needs the client of OpenAI: pip install 'lash-runtime[openai]'") from None

ERRORS: Final = ClientErrors(
    timeout=openai.APITimeoutError,
    connection=openai.APIConnectionError,
    status=openai.APIStatusError,
    any=openai.APIError,
)


class OpenAIModel:
    """A model of one of OpenAI's APIs. Its settings are arguments of every request."""

    provider: Final = "openai"

    def __init__(
        self,
        model: str,
        *,
        client: openai.AsyncOpenAI | None = None,
        **settings: Any,  # noqa: ANN401 (those of the client)
    ) -> None:
        self.model = model
        self._clients = Clients(client, _make_client)
        self._settings = settings

    async def _client(self) -> openai.AsyncOpenAI:
        """Return the client of the running event loop, without retries: lash makes them durably."""
        return (await self._clients.get()).with_options(max_retries=0)


def _make_client() -> openai.AsyncOpenAI:
    """Return a client with the settings of the environment. It has loaded its modules, which takes a while."""
    try:
        client = openai.AsyncOpenAI()
    except openai.OpenAIError as error:
        raise RequestRefused(f"no client of OpenAI can be made: {error}") from error
    _ = client.responses, client.chat.completions
    return client
