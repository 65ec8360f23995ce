"""Equal values have equal encodings and hashes, even where a default is an equal but different object."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest

import lash.model
from lash.model.queue import ProcessWake
from lash.model.session.trace import TraceStep
from lash.model.trigger.schedule import ScheduleDraft
from lash.model.value import Value
from tests.factories.session import frame

EXAMPLES = (
    ScheduleDraft(key="k", cron="0 * * * *"),
    ProcessWake(wake_id="w", process_id="p", sequence=1),
    frame("f"),
    TraceStep(name="search#1", began_at_ms=1, took_ms=2),
)
"""One of each stored record with such a default."""
NOT_STORED = {"CommitBudget": "an option of the storage"}


def _kinds(parent: type[Value] = Value) -> Iterator[type[Value]]:
    for module in pkgutil.iter_modules(lash.model.__path__):
        importlib.import_module(f"lash.model.{module.name}")
    for kind in parent.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _is_one_of_many(default: object) -> bool:
    """Return whether an equal value may be another object: Python shares small numbers and short texts."""
    return type(default) in (str, int, float, bytes) and pickle.loads(pickle.dumps(default)) is not default


def test_every_such_record_has_an_example() -> None:
    """A new field whose default can exist as two equal objects needs an example below."""
    found = {
        kind.__name__
        for kind in _kinds()
        if kind.__module__.startswith(f"{lash.model.__name__}.")
        and any(_is_one_of_many(field.default) for field in msgspec.structs.fields(kind))
    }
    assert found == {type(example).__name__ for example in EXAMPLES} | set(NOT_STORED)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_an_equal_default_is_left_out_like_the_default(example: Value) -> None:
    """A record built field by field from elsewhere encodes like one made here."""
    copied = pickle.loads(pickle.dumps(example))
    assert copied == example
    assert msgspec.json.encode(copied) == msgspec.json.encode(example)
