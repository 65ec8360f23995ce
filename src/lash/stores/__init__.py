"""Protocols of a storage and its stores: the contract of both backends. ``lash.stores.QueueStore`` and the like."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lash.stores.names import *
else:
    from lash.base.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__)
