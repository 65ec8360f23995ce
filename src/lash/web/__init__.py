"""The console: pages that show and steer a storage in a browser.

`console` returns an ASGI application to mount in your own; ``lash web`` serves it alone. It needs the extra ``web``.
"""

from __future__ import annotations

from lash.errors import ConfigError

try:
    from lash.web.access import Access
    from lash.web.console import console
except ModuleNotFoundError as error:
    if error.name not in ("starlette", "htpy"):
        raise
    raise ConfigError(f"the console needs {error.name}; install it with: pip install 'lash-runtime[web]'") from error

__all__ = ["Access", "console"]
