"""A pytest plugin: ChatKit's tests get the adapter as their store.

The source distribution lacks two helpers that its tests import. They are here: the store, and the context of a request.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from suite_urls import url_of

with warnings.catch_warnings():
    # ChatKit warns about its own widgets when it is imported.
    warnings.simplefilter("ignore")
    from lash.adapters.chatkit import LashStore

pytest_plugins = ["suite_urls"]


class SQLiteStore(LashStore):
    """The adapter with the arguments of the store of ChatKit's tests."""

    def __init__(self, db_path: str) -> None:
        super().__init__(url_of(db_path))
        self.db_path = db_path


class RequestContext(BaseModel):
    """What the tests pass as the context of a request."""

    user_id: str


def _module(name: str, **contents: Any) -> None:  # noqa: ANN401 (whatever a module has)
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module


_module("helpers")
_module("helpers.mock_store", SQLiteStore=SQLiteStore)
_module("tests._types", RequestContext=RequestContext)
