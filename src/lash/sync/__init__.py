"""Blocking use of lash, for scripts and notebooks.

::

    with lash.sync.open("sqlite:///agents.db") as storage:
        storage.sessions.create("a conversation")

    with lash.sync.App("sqlite:///agents.db") as app:
        print(app.session("a conversation").ask("hello"))

Everything that `lash.open`, `lash.shared` and `lash.App` offer is here under the same names, and waits instead of being
awaited: async iterators are iterators, ``async with`` is ``with``, values and errors are the same ones. It works in any
thread, in several at once, and where an event loop is running already, as in a notebook. Every object that is opened
has one thread with an event loop; it ends when the object is closed. `shared` is the storage of `lash.shared`.

Agents, processes and other functions that are handed in stay async: they run in that loop. A call from inside it is
refused with ConfigError, since the loop would wait for itself; plain functions that a step runs are in other threads
and may call. Ctrl-C cancels the call that waits.

The classes are derived from the async ones; their types are in ``__init__.pyi``, which ``python -m
tools.write_sync_stub`` writes.
"""

from lash.sync.proxy import INTERFACES, blocking
from lash.sync.roots import App
from lash.sync.roots import open_blocking as open  # noqa: A004 (as `lash.open`)
from lash.sync.roots import shared_blocking as shared
from lash.sync.stream import Stream

__all__ = ["App", "Stream", "open", "shared", *sorted(set(INTERFACES) - {"App"})]  # noqa: PLE0604 (all of them text)


def __getattr__(name: str) -> object:
    if name not in INTERFACES:
        raise AttributeError(f"module 'lash.sync' has no attribute {name!r}")
    return blocking(name)


def __dir__() -> list[str]:
    return sorted(__all__)
