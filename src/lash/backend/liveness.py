"""Whether another process of this machine is provably dead.

A process is identified by its machine, boot, pid namespace and the moment it started, so neither a reused pid nor a
neighbouring container is mistaken for it. Whatever cannot be read counts as alive.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from lash.base.ids import new_id
from lash.model.lease import LeaseOwner, LocalProcess

_PROC: Final = Path("/proc")
_GONE: Final = ""
"""The start mark of a process that does not exist; it equals no other mark."""
_STATE_FIELD, _START_FIELD = 0, 19  # from the first field after the closing parenthesis of the command


def current_owner(owner_id: str | None = None) -> LeaseOwner:
    """Return an identity for this process: the given stable worker id, and an incarnation of its own.

    Every call is a new incarnation, so two workers in one process never share a lease by accident.
    """
    return LeaseOwner(
        owner_id=owner_id if owner_id is not None else f"{socket.gethostname()}:{os.getpid()}",
        incarnation_id=new_id(),
        process=current_process(),
    )


def current_process(proc: Path = _PROC) -> LocalProcess | None:
    """Describe this process so that others on the machine can detect its death; None where /proc is missing."""
    start = _process_start(os.getpid(), proc)
    try:
        boot_id = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = (proc / "self/ns/pid").readlink().name
    except (OSError, UnicodeDecodeError):
        return None
    if not start:
        return None
    return LocalProcess(
        host_id=f"{socket.gethostname()}/{namespace}", boot_id=boot_id, pid=os.getpid(), process_start=start
    )


def is_provably_dead(holder: LocalProcess | None, claimant: LocalProcess | None, proc: Path = _PROC) -> bool:
    """Return whether the claimant, on the same boot of the same machine, can observe that the holder has ended."""
    if holder is None or claimant is None:
        return False
    if (holder.host_id, holder.boot_id) != (claimant.host_id, claimant.boot_id):
        return False
    start = _process_start(holder.pid, proc)
    return start is not None and start != holder.process_start


def _process_start(pid: int, proc: Path) -> str | None:
    """Return the start mark of a process, ``_GONE`` if no process has this pid, None if that is unknown."""
    try:
        status = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        # If even the first process is invisible, processes of other users are hidden, not gone.
        return _GONE if (proc / "1").exists() else None
    except OSError:
        return None
    fields = status.rpartition(")")[2].split()
    if len(fields) <= _START_FIELD:
        return None
    # A zombie has ended; only its parent has not read its exit code yet.
    return _GONE if fields[_STATE_FIELD] in ("Z", "X") else fields[_START_FIELD]
