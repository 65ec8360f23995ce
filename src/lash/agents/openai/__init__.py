"""Models of OpenAI and of compatible servers, through the official client: ``pip install 'lash-runtime[openai]'``."""

from lash.agents.openai.chat import ChatCompletions as ChatCompletions
from lash.agents.openai.responses import Responses as Responses
