"""The official client of OpenAI."""

from __future__ import annotations

from typing import Final

from lash.agents.errors import RequestRefused
from lash.agents.provider import ClientErrors
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


def make_client() -> openai.AsyncOpenAI:
    """Return a client with the settings of the environment. It has loaded its modules, which takes a while."""
    try:
        client = openai.AsyncOpenAI()
    except openai.OpenAIError as error:
        raise RequestRefused(f"no client of OpenAI can be made: {error}") from error
    _ = client.responses, client.chat.completions
    return client
