"""Rules of liveness: how a process describes itself, and what proves that another process has ended.

A pid means something only inside its pid namespace. The start of a process is counted from the boot, as the reader's
time namespace shows it. Both namespaces are therefore part of the description, and between processes that differ in one
of them, pids prove nothing. Once a namespace is gone with all its processes, the kernel may give its number to a new
one; so processes with the same numbers can be compared.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lash.model.lease import LocalProcess

# Fields of /proc/PID/stat, counted from the first one after the closing parenthesis of the command.
_STATE, _THREADS, _START = 0, 17, 19
_ENDED: Final = ("Z", "X")


class SelfView(msgspec.Struct, frozen=True, kw_only=True):
    """What a process reads about itself in /proc."""

    pid: int
    host_name: str
    self_link: str
    """The target of /proc/self."""
    status: str
    """The text of /proc/self/status."""
    stat: str
    """The line of /proc/self/stat."""
    boot_id: str
    pid_namespace: str
    time_namespace: str
    """Empty on a kernel without time namespaces."""


class PidView(msgspec.Struct, frozen=True, kw_only=True):
    """What a process sees of another one in its own pid namespace."""

    exists: bool
    stat: str | None = None
    """The line of /proc/PID/stat; None if it cannot be read, or if /proc shows another pid namespace."""


def describe(view: SelfView) -> LocalProcess | None:
    """Return the description of this process; None if /proc shows another pid namespace or lacks a part."""
    start = _start_of(view.stat)
    if not sees_itself(view.pid, view.self_link) or _pids_of(view.status) != [str(view.pid)]:
        return None
    if start is None or not view.boot_id:
        return None
    return LocalProcess(
        host_id=view.host_name,
        boot_id=view.boot_id,
        pid=view.pid,
        process_start=start,
        namespaces=f"{view.pid_namespace}/{view.time_namespace}",
    )


def sees_itself(pid: int, self_link: str) -> bool:
    """Return whether the /proc of this link numbers processes as this process does."""
    return self_link == str(pid)


def on_same_machine(holder: LocalProcess, claimant: LocalProcess) -> bool:
    """Return whether both run on the same boot of a machine of the same name."""
    return (holder.host_id, holder.boot_id) == (claimant.host_id, claimant.boot_id)


def in_same_namespaces(holder: LocalProcess, claimant: LocalProcess) -> bool:
    """Return whether the holder's pid, if it has one, and its start mean the same to both."""
    return holder.pid > 0 and holder.namespaces == claimant.namespaces


def is_dead(holder: LocalProcess, view: PidView) -> bool:
    """Return whether the view proves that the holder has ended; the viewer must be in the holder's namespaces.

    An ended first thread is proof only without other threads: they may still run.
    """
    if not view.exists:
        return True
    fields = None if view.stat is None else _fields_of(view.stat)
    if fields is None:
        return False
    if fields[_STATE] in _ENDED and fields[_THREADS] in ("0", "1"):
        return True
    return fields[_START] != holder.process_start


def _start_of(stat: str) -> str | None:
    fields = _fields_of(stat)
    return None if fields is None else fields[_START]


def _fields_of(stat: str) -> list[str] | None:
    """Return the fields behind the command, whose name may contain anything; None if there are too few."""
    fields = stat.rpartition(")")[2].split()
    return fields if len(fields) > _START else None


def _pids_of(status: str) -> list[str]:
    """Return the pids of the process, from the namespace of /proc down to its own."""
    lines = (line.partition(":") for line in status.splitlines())
    return next((value.split() for name, _, value in lines if name == "NSpid"), [])
