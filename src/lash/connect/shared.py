"""One storage per process and URL, for code that does not know which event loop or thread will call it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Unpack, cast

from lash.connect.any_loop import storage_class
from lash.connect.link import SharedLink
from lash.connect.open import OpenOptions
from lash.connect.url import absolute_url, identity_of
from lash.stores.storage import Storage

_links: Final[dict[Hashable, SharedLink]] = {}


def shared(url: str, **options: Unpack[OpenOptions]) -> Storage:
    """Return the storage that this process shares for the URL; the first call of one of its methods opens it.

    Its methods can be awaited from any asyncio event loop, and from several at once; plain threads use
    `lash.sync.shared`, which is the same storage. It lives in a thread with its own event loop and is closed at exit;
    short calls run in the thread of their caller, as those of an own storage do. A URL that names the same database
    with the same options is the same storage, however it is spelled; ``sqlite://`` is one database in memory for the
    whole process. A relative path is resolved here and now.

    The options are those of `lash.open` without ``pool``, which belongs to one event loop. They are passed once, in the
    first call for a URL; a later call without options returns the same storage, one with other options raises
    ConfigError.

    A cancelled call is cancelled in the storage, and raises once it has ended there. Errors are the same objects, with
    both sides in their traceback. Context variables of the caller are seen by the call. ``async with`` does not close
    the storage, because other code may use it; `close` does, and the next call opens it again. A child that is forked
    after the first call gets ConfigError.
    """
    return cast("Storage", storage_class()(shared_link(url, options)))


def shared_link(url: str, options: OpenOptions) -> SharedLink:
    """Return the link to the shared storage of a URL."""
    # One step of the dictionary: no lock that a fork could leave behind.
    link = _links.setdefault(identity_of(url), SharedLink(absolute_url(url)))
    link.configure(options)
    return link
