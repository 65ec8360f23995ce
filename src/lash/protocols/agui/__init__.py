"""An AG-UI server for agents of an application: `routes`. It needs the extra ``web``."""

from __future__ import annotations

from lash.errors import ConfigError

try:
    from lash.protocols.agui.routes import routes
except ModuleNotFoundError as error:
    if error.name != "starlette":
        raise
    raise ConfigError("this protocol needs starlette; install it with: pip install 'lash-runtime[web]'") from error

__all__ = ["routes"]
