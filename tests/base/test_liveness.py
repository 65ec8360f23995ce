"""Proof that a process is dead, from a /proc tree made for the test."""

import os
import platform
from pathlib import Path

import msgspec
import pytest

from lash.backend.liveness import current_owner, current_process, is_provably_dead
from lash.model.lease import LocalProcess

replace = msgspec.structs.replace

NAMESPACE = "pid:[4026531836]"
HOLDER = LocalProcess(host_id=f"host/{NAMESPACE}", boot_id="boot-1", pid=4_242, process_start="98765")
CLAIMANT = LocalProcess(host_id=f"host/{NAMESPACE}", boot_id="boot-1", pid=77, process_start="1")


def stat_line(pid: int, *, state: str = "S", start: str = "98765", command: str = "python3") -> str:
    """Return a line of /proc/PID/stat: field 3 is the state, field 22 the start."""
    between = " ".join(str(number) for number in range(4, 22))
    return f"{pid} ({command}) {state} {between} {start} 23 24 25\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc in which only the first process and the reader run."""
    (tmp_path / "1").mkdir()
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(NAMESPACE)
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("boot-1\n")
    return tmp_path


def run(proc: Path, line: str, pid: int = HOLDER.pid) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(line)


def test_a_process_that_is_gone_is_dead(proc: Path) -> None:
    """A missing entry in a readable /proc is proof."""
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is True


def test_a_running_process_is_alive(proc: Path) -> None:
    """The same pid with the same start mark is the holder itself."""
    run(proc, stat_line(HOLDER.pid))
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is False


def test_a_reused_pid_is_not_the_holder(proc: Path) -> None:
    """Another start mark means that the holder died and another process got its pid."""
    run(proc, stat_line(HOLDER.pid, start="98766"))
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is True


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_zombie_is_dead(proc: Path, state: str) -> None:
    """A zombie has exited; only its parent has not collected the exit code."""
    run(proc, stat_line(HOLDER.pid, state=state))
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is True


@pytest.mark.parametrize("state", ["R", "S", "D", "T", "t", "I"])
def test_a_waiting_or_stopped_process_is_alive(proc: Path, state: str) -> None:
    """A stopped process can continue at any time."""
    run(proc, stat_line(HOLDER.pid, state=state))
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is False


@pytest.mark.parametrize("command", ["odd (name) Z 1 2", "a b", ")", "", ") Z 1 2 3"])
def test_a_command_cannot_forge_its_state(proc: Path, command: str) -> None:
    """Fields are counted behind the last parenthesis, whatever the command's name contains."""
    run(proc, stat_line(HOLDER.pid, command=command))
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is False


def test_a_command_that_is_no_text_is_read_all_the_same(proc: Path) -> None:
    """A name in another encoding does not hide a process."""
    (proc / str(HOLDER.pid)).mkdir()
    (proc / str(HOLDER.pid) / "stat").write_bytes(stat_line(HOLDER.pid, command="@").encode().replace(b"@", b"\xff"))
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is False


@pytest.mark.parametrize(
    "claimant",
    [
        replace(CLAIMANT, boot_id="boot-2"),
        replace(CLAIMANT, host_id="other/pid:[4026531836]"),
        replace(CLAIMANT, host_id="host/pid:[4026532000]"),
        None,
    ],
    ids=["other boot", "other machine", "other namespace", "unknown"],
)
def test_whoever_cannot_see_the_holder_proves_nothing(proc: Path, claimant: LocalProcess | None) -> None:
    """Only the same boot of the same machine and namespace can prove a death."""
    assert is_provably_dead(HOLDER, claimant, proc) is False


def test_a_holder_that_did_not_say_where_it_runs_counts_as_alive(proc: Path) -> None:
    """A holder without a description counts as alive until its lease expires."""
    assert is_provably_dead(None, CLAIMANT, proc) is False


def test_without_proc_everybody_counts_as_alive(tmp_path: Path) -> None:
    """Without /proc, a missing entry proves nothing."""
    assert is_provably_dead(HOLDER, CLAIMANT, tmp_path / "missing") is False
    assert is_provably_dead(HOLDER, CLAIMANT, tmp_path) is False


@pytest.mark.parametrize("line", ["", "4242 (python3) S 1 2", "4242", "\n"])
def test_a_line_that_cannot_be_understood_proves_nothing(proc: Path, line: str) -> None:
    """A truncated line does not prove a death."""
    run(proc, line)
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is False


def test_an_entry_that_cannot_be_read_proves_nothing(proc: Path) -> None:
    """An error other than absence counts as alive; a directory instead of the file raises one even for root."""
    (proc / str(HOLDER.pid) / "stat").mkdir(parents=True)
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is False


def test_where_processes_are_hidden_nobody_is_dead(proc: Path) -> None:
    """With ``hidepid`` other users' processes are invisible, even the first one, so nothing is proven."""
    (proc / "1").rmdir()
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is False


def test_a_process_that_ends_while_it_is_read_is_dead(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel then reports that there is no such process."""

    def ended(*arguments: object, **options: object) -> str:
        raise ProcessLookupError

    monkeypatch.setattr(Path, "read_text", ended)
    assert is_provably_dead(HOLDER, CLAIMANT, proc) is True


def test_this_process_describes_itself(proc: Path) -> None:
    """Machine, namespace, boot, pid and start mark are those of the tree."""
    run(proc, stat_line(os.getpid(), start="5"), os.getpid())
    assert current_process(proc) == LocalProcess(
        host_id=f"{platform.node()}/{NAMESPACE}", boot_id="boot-1", pid=os.getpid(), process_start="5"
    )


@pytest.mark.parametrize("broken", ["self/ns/pid", "sys/kernel/random/boot_id", "stat"])
def test_a_process_that_cannot_be_described_says_nothing(proc: Path, broken: str) -> None:
    """Without all of its parts there is no description, as a partial one could match another process."""
    run(proc, stat_line(os.getpid()), os.getpid())
    (proc / (f"{os.getpid()}/stat" if broken == "stat" else broken)).unlink()
    assert current_process(proc) is None


def test_a_boot_id_that_is_no_text_says_nothing(proc: Path) -> None:
    """A damaged boot id is not used as an identity."""
    run(proc, stat_line(os.getpid()), os.getpid())
    (proc / "sys/kernel/random/boot_id").write_bytes(b"\xff")
    assert current_process(proc) is None


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
def test_on_this_machine_the_living_and_the_dead_are_told_apart() -> None:
    """With the real /proc, this process is alive and a reaped child is dead."""
    here = current_process()
    assert here is not None
    assert is_provably_dead(here, here) is False
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert is_provably_dead(replace(here, pid=child), here) is True
