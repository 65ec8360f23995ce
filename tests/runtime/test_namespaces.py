"""Workers in containers: who is taken for dead, with real pid and time namespaces."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lash
from tests.runtime.worker_kit import PATIENCE_S, crew

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(120),
]

OUTER_PROC = ("unshare", "--pid", "--fork", "--kill-child")
OWN_PROC = (*OUTER_PROC, "--mount-proc")
# nsenter would continue in the root directory, where Python finds no tests.
HERE = f"--wd={Path(__file__).parents[2]}"
OTHER_TIME = ("unshare", "--time", "--boottime", "100000", "--fork", "--kill-child")


@functools.cache
def _works(*prefix: str) -> bool:
    """Return whether this kernel, and this user, can make such a namespace."""
    if shutil.which(prefix[0]) is None:
        return False
    return subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0


def needs(*prefix: str) -> None:
    if not _works(*prefix):
        pytest.skip(f"not possible here: {' '.join(prefix)}")


@pytest.fixture
async def url(backend_url: str) -> str:
    """A storage with one session."""
    async with await lash.open(backend_url) as storage:
        await storage.sessions.create("s")
    return backend_url


def program(action: str, url: str, *options: str, within: tuple[str, ...] = ()) -> list[str]:
    return [*within, sys.executable, "-m", "tests.runtime.namespace_program", action, url, *options]


def take(url: str, *, within: tuple[str, ...] = ()) -> str:
    """Let another process try to take the lease; return how that ended."""
    ended = subprocess.run(
        program("take", url, within=within), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@contextlib.contextmanager
def started(arguments: list[str], line: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that has printed this line; its input ends with the block, and it is killed if it goes on."""
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == line
        yield process
    finally:
        process.kill()
        assert process.stdout is not None
        # To the end of all processes that write there. If their input ended first, they could end in an orderly way.
        process.stdout.read()
        process.communicate()


@contextlib.contextmanager
def holding(url: str, *options: str, within: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    with started(program("hold", url, *options, within=within), "held") as process:
        yield process


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def test_a_holder_that_sees_the_proc_of_another_namespace_is_not_displaced(url: str) -> None:
    """A process of the same number in the outer namespace, while it runs and when it ends, is not the holder."""
    needs(*OUTER_PROC)
    twin = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with holding(url, "--pid", str(twin.pid), within=OUTER_PROC) as holder:
        (inside,) = children(holder.pid)
        enter = ("nsenter", "--target", str(inside), "--pid", HERE)
        needs(*enter)
        assert take(url, within=enter) == "busy"
        twin.kill()
        twin.communicate()
        assert take(url, within=enter) == "busy"
        assert take(url) == "busy"


def test_processes_that_count_time_differently_do_not_displace_each_other(url: str) -> None:
    """Each sees another start of the other process, which proves nothing."""
    needs(*OTHER_TIME)
    with holding(url):
        assert take(url, within=OTHER_TIME) == "busy"


def test_a_living_holder_in_another_time_namespace_keeps_its_lease(url: str) -> None:
    """The same in the other direction."""
    needs(*OTHER_TIME)
    with holding(url, within=OTHER_TIME):
        assert take(url) == "busy"


def test_a_living_holder_in_another_pid_namespace_keeps_its_lease(url: str) -> None:
    """A living process in another container holds its lock of presence."""
    needs(*OWN_PROC)
    with holding(url, within=OWN_PROC):
        assert take(url, within=OWN_PROC) == "busy"
        assert take(url) == "busy"


def test_a_dead_neighbour_in_a_container_is_replaced_at_once(url: str) -> None:
    """Processes of one container, which has its own /proc, see each other's death."""
    needs(*OWN_PROC)
    waits = [*OWN_PROC, sys.executable, "-c", "print('up', flush=True); input()"]
    with started(waits, "up") as container:
        (inside,) = children(container.pid)
        enter = ("nsenter", "--target", str(inside), "--pid", "--mount", HERE)
        needs(*enter)
        with holding(url, within=enter) as holder:
            assert take(url, within=enter) == "busy"
            (worker,) = children(holder.pid)
            os.kill(worker, signal.SIGKILL)
            holder.wait(PATIENCE_S)
        assert take(url, within=enter) == "acquired"


def test_a_container_that_restarts_is_recognised_at_once(url: str) -> None:
    """The next start of a container, in new namespaces, proves by the lock that its predecessor died."""
    needs(*OWN_PROC)
    with holding(url, within=OWN_PROC):
        pass
    assert take(url, within=OWN_PROC) == "acquired"


def test_without_the_files_of_its_predecessor_a_container_waits(url: str, tmp_path: Path) -> None:
    """A container with another file system has no proof, so the lease keeps its time."""
    needs(*OWN_PROC)
    with holding(url, within=OWN_PROC):
        pass
    assert take(url, within=("env", f"TMPDIR={tmp_path}", *OWN_PROC)) == "busy"


async def test_a_worker_in_a_restarted_container_takes_over_at_once(backend_url: str, tmp_path: Path) -> None:
    """The lease has minutes left when the container is killed; the next one does its work at once."""
    needs(*OWN_PROC)
    async with lash.App(backend_url, worker=False) as sender:
        with crew(backend_url, tmp_path) as workers:
            first = workers.hire(within=OWN_PROC)
            await sender.session("s").send("hold a", key="1")
            await workers.began("a")
            first.kill()
            first.wait()
            workers.open_gate("a")
            workers.hire(within=OWN_PROC)
            assert await sender.session("s").ask("hold a", key="1", timeout_s=PATIENCE_S) == "did a"


def test_a_container_that_restarts_in_the_same_namespaces_is_recognised_at_once(url: str) -> None:
    """The first process of a container was killed, and the next one has the same pid: its start proves the death."""
    needs(*OWN_PROC)
    waits = [*OWN_PROC, sys.executable, "-c", "print('up', flush=True); input()"]
    with started(waits, "up") as container:
        (inside,) = children(container.pid)
        enter = ("nsenter", "--target", str(inside), "--pid", "--mount", HERE)
        needs(*enter)
        with holding(url, "--pid", "500", within=enter) as holder:
            (starter,) = children(holder.pid)
            (worker,) = children(starter)
            os.kill(worker, signal.SIGKILL)
            holder.wait(PATIENCE_S)
        ended = subprocess.run(
            program("take", url, "--pid", "500", within=enter), capture_output=True, text=True, check=False
        )
        assert (ended.stdout.strip(), ended.returncode) == ("acquired", 0), ended.stderr
