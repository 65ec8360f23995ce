"""Code that runs as another user of the machine, for tests of rights; only root can start it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

STRANGER = 54_321
"""A user and a group that own nothing."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run code as another user")


@contextlib.contextmanager
def reachable_directory() -> Iterator[Path]:
    """Yield a new directory that all users can enter; those of pytest are private."""
    directory = Path(tempfile.mkdtemp(prefix="lash-rights-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def run_as(user: int, work: Callable[[], object], *, groups: tuple[int, ...] = ()) -> int:
    """Run work in a child process of this user; return 0, the errno of an OSError, or 255 for another exception."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            os.setgroups(groups)
            os.setgid(user)
            os.setuid(user)
            work()
            code = 0
        except OSError as error:
            code = error.errno or 255
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
