"""Reading the facts of liveness: from a /proc tree made for the test, and from the real one."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lash.backend.liveness import current_owner, current_process, is_provably_dead, worker_owner
from lash.model.lease import LocalProcess
from tests.other_user import STRANGER, needs_root, run_as

replace = msgspec.structs.replace

HERE = "pid:[4026531836]/time:[4026531834]"
HOLDER = LocalProcess(host_id="h", boot_id="boot-1", pid=os.getppid(), process_start="98765", namespaces=HERE)
CLAIMANT = LocalProcess(host_id="h", boot_id="boot-1", pid=77, process_start="1", namespaces=HERE)
"""The holder has a pid that is in use; what it is shown as is up to the tree."""


def stat_line(pid: int, *, start: str = "98765", command: str = "python3") -> str:
    between = " ".join(str(number) for number in range(4, 22))
    return f"{pid} ({command}) S {between} {start} 23 24 25\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc in which only the reader runs."""
    own = tmp_path / str(os.getpid())
    (own / "ns").mkdir(parents=True)
    (own / "ns/pid").symlink_to("pid:[4026531836]")
    (own / "ns/time").symlink_to("time:[4026531834]")
    (own / "status").write_text(f"Name:\tpython3\nNSpid:\t{os.getpid()}\n")
    (own / "stat").write_text(stat_line(os.getpid(), start="5"))
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("boot-1\n")
    return tmp_path


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def show(proc: Path, line: str) -> None:
    (proc / str(HOLDER.pid)).mkdir()
    (proc / str(HOLDER.pid) / "stat").write_text(line)


def test_this_process_describes_itself(proc: Path) -> None:
    """Machine, namespaces, boot, pid and start are those of the tree."""
    assert current_process(proc) == LocalProcess(
        host_id=platform.node(),
        boot_id="boot-1",
        pid=os.getpid(),
        process_start="5",
        namespaces="pid:[4026531836]/time:[4026531834]",
    )


def test_a_kernel_without_time_namespaces(proc: Path) -> None:
    """Without a link for it there is one time for all processes."""
    (proc / "self/ns/time").unlink()
    here = current_process(proc)
    assert here is not None
    assert here.namespaces == "pid:[4026531836]/"


@pytest.mark.parametrize("broken", ["self", "self/ns/pid", "self/status", "self/stat", "sys/kernel/random/boot_id"])
def test_a_process_that_cannot_be_described_has_no_identity(proc: Path, broken: str) -> None:
    """A process that cannot read every part is not described: a partial description could match another process."""
    (proc / broken).unlink()
    assert current_process(proc) is None


def test_the_proc_of_another_namespace_gives_no_identity(proc: Path) -> None:
    """Where /proc/self is not this process, its entries are other processes."""
    (proc / "self").unlink()
    (proc / str(os.getpid())).rename(proc / "999999")
    (proc / "self").symlink_to("999999")
    assert current_process(proc) is None


def test_a_boot_id_that_is_not_text_gives_no_identity(proc: Path) -> None:
    """A damaged boot id is not used as an identity."""
    (proc / "sys/kernel/random/boot_id").write_bytes(b"\xff")
    assert current_process(proc) is None


def test_a_running_process_is_alive(proc: Path) -> None:
    """The same pid with the same start is the holder itself, whatever bytes its name has."""
    (proc / str(HOLDER.pid)).mkdir()
    line = stat_line(HOLDER.pid, command="@").encode().replace(b"@", b"\xff")
    (proc / str(HOLDER.pid) / "stat").write_bytes(line)
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is False


def test_a_reused_pid_is_not_the_holder(proc: Path) -> None:
    """Another start means that the holder died and another process got its pid."""
    show(proc, stat_line(HOLDER.pid, start="98766"))
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is True


def test_the_proc_of_another_namespace_proves_nothing(proc: Path) -> None:
    """A start that was read there is that of another process."""
    show(proc, stat_line(HOLDER.pid, start="98766"))
    (proc / "self").unlink()
    (proc / "self").symlink_to("999999")
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is False


def test_a_process_without_an_identity_proves_nothing_and_is_not_proven_dead(proc: Path) -> None:
    """Without a description of both, or in other namespaces, the holder counts as alive."""
    show(proc, stat_line(HOLDER.pid, start="98766"))
    assert is_provably_dead(None, CLAIMANT, proc) is False
    assert is_provably_dead(HOLDER, None, proc) is False
    assert is_provably_dead(HOLDER, replace(CLAIMANT, host_id="other"), proc) is False
    assert is_provably_dead(HOLDER, replace(CLAIMANT, namespaces="other"), proc) is False


@pytest.mark.parametrize("hidden", ["missing", "unreadable", "no /proc"])
def test_a_process_that_is_hidden_is_alive(proc: Path, hidden: str) -> None:
    """A missing entry in /proc proves nothing while the pid is in use: ``hidepid`` hides processes of other users."""
    if hidden == "unreadable":
        (proc / str(HOLDER.pid) / "stat").mkdir(parents=True)
    tree = proc / "none" if hidden == "no /proc" else proc
    assert is_provably_dead(HOLDER, CLAIMANT, tree) is False


@pytest.mark.parametrize("pid", [2**31, 2**63 - 1])
def test_a_pid_beyond_those_of_the_kernel_proves_nothing(proc: Path, pid: int) -> None:
    """A row that another program wrote does not become an error."""
    assert is_provably_dead(replace(HOLDER, pid=pid), CLAIMANT, proc) is False


@needs_root
def test_a_process_of_another_user_is_alive(child: subprocess.Popen[bytes]) -> None:
    """A process that this one may not signal exists."""
    here = current_process()
    assert here is not None
    holder = replace(here, pid=child.pid)

    def look() -> None:
        assert is_provably_dead(holder, here, Path("/nowhere")) is False

    assert run_as(STRANGER, look) == 0


def test_a_worker_has_a_mark_of_presence() -> None:
    """Workers of one process share its mark; a worker without an identity has none."""
    first, second = worker_owner("worker"), worker_owner("worker")
    assert first.process is not None
    assert first.process.presence is not None
    assert first.process == second.process
    assert current_owner("worker").process == replace(first.process, presence=None)


def test_every_owner_is_an_incarnation_of_its_own() -> None:
    """Two workers of one process never share a lease by accident."""
    first, second = current_owner("worker"), current_owner("worker")
    assert (first.owner_id, second.owner_id) == ("worker", "worker")
    assert first.incarnation_id != second.incarnation_id
    assert first.process == second.process
    assert not first.same_holder(second)


def test_an_owner_without_a_name_is_called_after_machine_and_process() -> None:
    """An empty name is kept, so that the check of names can refuse it."""
    assert current_owner().owner_id == f"{platform.node()}:{os.getpid()}"
    assert current_owner("").owner_id == ""


@pytest.mark.skipif(not Path("/proc/self/ns/pid").is_symlink(), reason="needs a Linux /proc")
def test_on_this_machine_living_and_dead_processes_differ(child: subprocess.Popen[bytes]) -> None:
    """With the real /proc, this process and a child are alive; a killed child is dead, even before it is reaped."""
    here = current_process()
    assert here is not None
    assert is_provably_dead(here, here) is False
    stat = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8")
    holder = replace(here, pid=child.pid, process_start=stat.rpartition(")")[2].split()[19])
    assert is_provably_dead(holder, here) is False
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_provably_dead(holder, here) is True
    child.wait()
    assert is_provably_dead(holder, here) is True
