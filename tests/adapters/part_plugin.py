"""A pytest plugin: counts the tests of a suite, and runs one part of them if the run is a sample.

``LASH_ADAPTERS_PART`` is ``TURN/PARTS``, and ``LASH_ADAPTERS_COUNT`` the file that gets the number of all tests and of
the chosen ones. The plugin runs in the environment of a framework, without the tools of this repository.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turn, parts = map(int, os.environ["LASH_ADAPTERS_PART"].split("/"))
    chosen = items[turn % parts :: parts]
    counts = {"all": len(items), "chosen": len(chosen)}
    # Each process of pytest-xdist writes the same; renaming keeps the file whole.
    partial = Path(f"{os.environ['LASH_ADAPTERS_COUNT']}.{os.getpid()}")
    partial.write_text(json.dumps(counts))
    partial.replace(os.environ["LASH_ADAPTERS_COUNT"])
    config.hook.pytest_deselected(items=[each for each in items if each not in set(chosen)])
    items[:] = chosen
