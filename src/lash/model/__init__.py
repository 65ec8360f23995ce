"""Frozen values that stores take and return. Every public one can be imported from here: ``lash.model.Commit``."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lash.model.names import *
else:
    from lash.base.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__)
