"""Whether another process of this machine is provably dead.

A process is identified by its machine, boot, pid namespace, time namespace and the moment it started, so neither a
reused pid nor a neighbouring container is mistaken for it. A worker also holds a lock that processes in other
namespaces can try (`presence`). Whatever cannot be read counts as alive. The rules are in `lash.plan.liveness`.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

import msgspec

from lash.backend.presence import is_over, own_mark
from lash.base.ids import new_id
from lash.model.lease import LeaseOwner, LocalProcess
from lash.plan.liveness import (
    PidView,
    SelfView,
    describe,
    in_same_namespaces,
    is_dead,
    on_same_machine,
    sees_itself,
)

_PROC: Final = Path("/proc")
_NO_SIGNAL: Final = 0
"""Sends no signal; the call only fails if the pid is unused."""


def current_owner(owner_id: str | None = None) -> LeaseOwner:
    """Return an identity for this process: the given stable worker id, and an incarnation of its own.

    Every call is a new incarnation, so two workers in one process never share a lease by accident.
    """
    return LeaseOwner(
        owner_id=owner_id if owner_id is not None else f"{socket.gethostname()}:{os.getpid()}",
        incarnation_id=new_id(),
        process=current_process(),
    )


def worker_owner(owner_id: str | None = None) -> LeaseOwner:
    """Return `current_owner` with a mark of presence, by which the next start of a container recognises its death."""
    owner = current_owner(owner_id)
    if owner.process is None:
        return owner
    return msgspec.structs.replace(owner, process=msgspec.structs.replace(owner.process, presence=own_mark()))


def current_process(proc: Path = _PROC) -> LocalProcess | None:
    """Describe this process so that others on the machine can detect its death.

    Returns None if /proc is missing or belongs to another pid namespace.
    """
    try:
        view = SelfView(
            pid=os.getpid(),
            host_name=socket.gethostname(),
            self_link=str((proc / "self").readlink()),
            status=(proc / "self/status").read_text(encoding="utf-8", errors="replace"),
            stat=(proc / "self/stat").read_text(encoding="utf-8", errors="replace"),
            boot_id=(proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            pid_namespace=(proc / "self/ns/pid").readlink().name,
            time_namespace=_time_namespace(proc),
        )
    except (OSError, UnicodeDecodeError):
        return None
    return describe(view)


def is_provably_dead(holder: LocalProcess | None, claimant: LocalProcess | None, proc: Path = _PROC) -> bool:
    """Return whether the claimant, which is this process, can observe that the holder has ended."""
    if holder is None or claimant is None or not on_same_machine(holder, claimant):
        return False
    if in_same_namespaces(holder, claimant):
        return is_dead(holder, PidView(exists=_exists(holder.pid), stat=_stat_of(holder.pid, proc)))
    return holder.presence is not None and is_over(holder.presence)


def _exists(pid: int) -> bool:
    """Return whether this pid is in use in the pid namespace of this process, whatever /proc shows or hides."""
    try:
        os.kill(pid, _NO_SIGNAL)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        # It belongs to another user, or the question is not allowed.
        return True
    return True


def _stat_of(pid: int, proc: Path) -> str | None:
    try:
        if not sees_itself(os.getpid(), str((proc / "self").readlink())):
            return None
        return (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _time_namespace(proc: Path) -> str:
    try:
        return (proc / "self/ns/time").readlink().name
    except FileNotFoundError:
        return ""
