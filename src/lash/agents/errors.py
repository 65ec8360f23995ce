"""Why a model gave no usable reply."""

from __future__ import annotations

from lash.errors import Advice, ExecutionError
from lash.runtime.errors import Permanent


class ModelError(ExecutionError):
    """A model gave no usable reply."""


class RateLimited(ModelError):
    """The provider limits the requests: send fewer at once, or raise the limit there. lash waits as long as it says."""

    advice = Advice.RETRY

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelTimedOut(ModelError):
    """The provider did not answer in time: raise the timeout of its client, or ask for less."""

    advice = Advice.RETRY


class ModelUnavailable(ModelError):
    """The provider cannot be reached, is overloaded or has failed: try again later."""

    advice = Advice.RETRY

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ToolsUnavailable(ModelError):
    """The server of some of the agent's tools cannot be reached: try again later, or check that it runs."""

    advice = Advice.RETRY


class RequestRefused(ModelError, Permanent):
    """The provider does not accept the request: a wrong key or model, a setting, or too long a conversation."""

    advice = Advice.FIX


class ModelRefused(ModelError, Permanent):
    """The model, or a filter of the provider, refused to answer: another request may help, the same one will not."""


class LengthReached(ModelError, Permanent):
    """The reply was cut off at the limit of output tokens or of the context: raise the limit, or send less."""

    advice = Advice.FIX


class OutputMismatch(ModelError, Permanent):
    """The reply does not fit the declared type of the output, also after the model was asked to correct it."""


class TooManyRounds(ModelError, Permanent):
    """The model kept calling tools: raise ``max_rounds`` of the agent, or change its instructions."""

    advice = Advice.FIX
