"""What proves that a process has ended, and which processes can see each other."""

from __future__ import annotations

import msgspec
import pytest

from lash.model.lease import LocalProcess
from lash.plan.liveness import PidView, SelfView, describe, in_same_namespaces, is_dead, on_same_machine, sees_itself

replace = msgspec.structs.replace

HERE = "pid:[4026531836]/time:[4026531834]"
HOLDER = LocalProcess(host_id="host", boot_id="boot-1", pid=4_242, process_start="98765", namespaces=HERE)
CLAIMANT = LocalProcess(host_id="host", boot_id="boot-1", pid=77, process_start="1", namespaces=HERE)


def stat_line(*, state: str = "S", threads: str = "1", start: str = "98765", command: str = "python3") -> str:
    """Return a line of /proc/PID/stat: field 3 is the state, field 20 the number of threads, field 22 the start."""
    between = " ".join(str(number) for number in range(4, 20))
    return f"4242 ({command}) {state} {between} {threads} 21 {start} 23 24 25\n"


VIEW = SelfView(
    pid=4_242,
    host_name="host",
    self_link="4242",
    status="Name:\tpython3\nPid:\t4242\nNSpid:\t4242\nNSsid:\t1\n",
    stat=stat_line(),
    boot_id="boot-1",
    pid_namespace="pid:[4026531836]",
    time_namespace="time:[4026531834]",
)


def seen(line: str | None) -> PidView:
    return PidView(exists=True, stat=line)


def test_a_process_describes_itself() -> None:
    """Machine, namespaces, boot, pid and start are its identity."""
    assert describe(VIEW) == HOLDER


def test_a_kernel_without_time_namespaces() -> None:
    """All processes of such a kernel count the same time."""
    assert describe(replace(VIEW, time_namespace="")) == replace(HOLDER, namespaces="pid:[4026531836]/")


@pytest.mark.parametrize(
    "view",
    [
        replace(VIEW, self_link="11157"),
        replace(VIEW, self_link=""),
        replace(VIEW, status="NSpid:\t4242\t4242\n"),
        replace(VIEW, status="NSpid:\t11157\n"),
        replace(VIEW, status="NSpid:\n"),
        replace(VIEW, status="Name:\tpython3\n"),
        replace(VIEW, status="XNSpid:\t4242\n"),
        replace(VIEW, boot_id=""),
        replace(VIEW, stat=""),
        replace(VIEW, stat="4242 (python3) S 1 2\n"),
    ],
    ids=[
        "/proc of an outer namespace",
        "no link",
        "outer namespace with the same number",
        "another number",
        "no number",
        "no line of numbers",
        "a similar line",
        "no boot id",
        "no line",
        "half a line",
    ],
)
def test_without_a_proc_of_its_own_a_process_has_no_identity(view: SelfView) -> None:
    """A description that could match another process is not given."""
    assert describe(view) is None


def test_a_proc_shows_its_reader() -> None:
    """The link of /proc names the reader's pid, or another one where /proc is not its own."""
    assert sees_itself(4_242, "4242") is True
    assert sees_itself(4_242, "11157") is False


@pytest.mark.parametrize(
    ("claimant", "possible"),
    [
        (CLAIMANT, True),
        (replace(CLAIMANT, boot_id="boot-2"), False),
        (replace(CLAIMANT, host_id="other"), False),
        (replace(CLAIMANT, namespaces=HERE.replace("4026531836", "4026532177")), True),
    ],
    ids=["same", "other boot", "other machine", "other container"],
)
def test_a_machine_is_one_boot_under_one_name(claimant: LocalProcess, *, possible: bool) -> None:
    """Another boot, or another name of the machine, leaves doubt."""
    assert on_same_machine(HOLDER, claimant) is possible


@pytest.mark.parametrize(
    ("claimant", "possible"),
    [
        (CLAIMANT, True),
        (replace(CLAIMANT, namespaces=HERE.replace("4026531836", "4026532177")), False),
        (replace(CLAIMANT, namespaces=HERE.replace("4026531834", "4026532178")), False),
    ],
    ids=["same", "other pid namespace", "other time namespace"],
)
def test_pids_and_starts_are_compared_in_the_same_namespaces(claimant: LocalProcess, *, possible: bool) -> None:
    """In another pid namespace the pid is that of another process; in another time namespace its start differs."""
    assert in_same_namespaces(HOLDER, claimant) is possible


@pytest.mark.parametrize(("pid", "possible"), [(0, False), (1, True)])
def test_a_pid_that_no_process_has(pid: int, *, possible: bool) -> None:
    """Number 0 means the observer's own group of processes, and proves nothing."""
    assert in_same_namespaces(replace(HOLDER, pid=pid), CLAIMANT) is possible


def test_a_pid_that_is_not_in_use_is_proof() -> None:
    """The kernel knows every process of the namespace, whatever /proc shows."""
    assert is_dead(HOLDER, PidView(exists=False)) is True
    assert is_dead(HOLDER, PidView(exists=False, stat=stat_line())) is True


@pytest.mark.parametrize("state", ["R", "S", "D", "T", "t", "I"])
def test_a_waiting_or_stopped_process_is_alive(state: str) -> None:
    """A stopped process can continue at any time."""
    assert is_dead(HOLDER, seen(stat_line(state=state))) is False


def test_a_reused_pid_is_not_the_holder() -> None:
    """Another start means that the holder has ended, also if its whole namespace was replaced by a new one."""
    assert is_dead(HOLDER, seen(stat_line(start="98766"))) is True


@pytest.mark.parametrize("state", ["Z", "X"])
@pytest.mark.parametrize(("threads", "dead"), [("0", True), ("1", True), ("2", False), ("10", False)])
def test_a_zombie_is_dead_once_no_thread_runs(state: str, threads: str, *, dead: bool) -> None:
    """Only its parent has not read its exit code yet; with further threads, only the first thread has ended."""
    assert is_dead(HOLDER, seen(stat_line(state=state, threads=threads))) is dead


@pytest.mark.parametrize("command", ["odd (name) Z 1 2", "a b", ")", "", ") Z 1 2 3"])
def test_a_command_cannot_forge_its_state(command: str) -> None:
    """Fields are counted behind the last parenthesis, whatever the command's name contains."""
    assert is_dead(HOLDER, seen(stat_line(command=command))) is False


@pytest.mark.parametrize("line", [None, "", "4242 (python3) S 1 2", "4242", "\n", stat_line().rpartition(" 98765")[0]])
def test_a_line_that_cannot_be_understood_proves_nothing(line: str | None) -> None:
    """A missing or truncated line does not prove a death."""
    assert is_dead(HOLDER, seen(line)) is False
