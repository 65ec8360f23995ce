"""The Agent2Agent protocol: an agent of an application as a server for other agents; it needs the extra ``a2a``."""

from __future__ import annotations

from lash.errors import ConfigError

try:
    from lash.protocols.a2a.handler import AgentHandler
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("a2a", "google"):
        raise
    raise ConfigError("A2A needs a2a-sdk; install it with: pip install 'lash-runtime[a2a]'") from error

__all__ = ["AgentHandler"]
