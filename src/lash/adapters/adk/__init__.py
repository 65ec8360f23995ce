"""Google's Agent Development Kit on a lash storage: install ``lash-runtime[adk]``."""

from __future__ import annotations

from lash.adapters.attached import not_installed

try:
    from lash.adapters.adk.artifacts import LashArtifactService
    from lash.adapters.adk.sessions import LashSessionService
except ModuleNotFoundError as error:
    raise not_installed("Google's Agent Development Kit", extra="adk") from error

__all__ = ["LashArtifactService", "LashSessionService"]
