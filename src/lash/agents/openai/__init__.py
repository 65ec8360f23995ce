"""Models of OpenAI and of compatible servers, through the official client: ``pip install 'lash-runtime[openai]'``."""

# First: it says what to install if the client is missing.
from lash.agents.openai.client import OpenAIModel as OpenAIModel  # isort: skip
from lash.agents.openai.chat import ChatCompletions as ChatCompletions
from lash.agents.openai.responses import Responses as Responses
