"""What `lash acts ls` shows of the commands that change something."""

from __future__ import annotations

import getpass

from tests.cli.kit import output, run, values
from tests.cli.seed import Seeded


def test_acts_have_their_operator_and_outcome(seeded: Seeded) -> None:
    """Each command records what it did and who did it; a refused one has the class of its error."""
    for arguments in (
        ("sessions", "fork", "support-42", "what-if", "--as", "ada"),
        ("queue", "requeue", "support-42", seeded.batch, "--as", "ada"),
        ("cancel", "research-7", "--as", "bob"),
        ("signal", "research-7", "approve", "--as", "bob"),
        ("waits", "resolve", seeded.wait, '{"approved": true}', "--as", "ada"),
        ("waits", "reject", seeded.key, "--as", "eve"),
        ("sessions", "rm", "what-if", "--yes"),
    ):
        run(*arguments, url=seeded.url)
    found = [
        (act["by"], act["verb"], act["target"], act["session_id"], act["process_id"], act["outcome"], act["error"])
        for act in values("acts", "ls", url=seeded.url)
    ]
    assert found == [
        (getpass.getuser(), "delete", "what-if", "what-if", None, "done", None),
        ("eve", "reject", seeded.wait, None, "research-7", "refused", "CommandFailed"),
        ("ada", "resolve", seeded.wait, None, "research-7", "done", None),
        ("bob", "signal", "approve", None, "research-7", "done", None),
        ("bob", "cancel", "research-7", None, "research-7", "done", None),
        ("ada", "requeue", seeded.batch, "support-42", None, "done", None),
        ("ada", "fork", "what-if", "support-42", None, "done", None),
    ]
    assert seeded.key not in output("acts", "ls", "--json", url=seeded.url)


def test_acts_are_chosen_by_operator_session_and_process(seeded: Seeded) -> None:
    """A session and a process exclude each other."""
    run("sessions", "fork", "support-42", "what-if", "--as", "ada", url=seeded.url)
    run("cancel", "research-7", "--as", "bob", url=seeded.url)
    for chosen, verb in (
        (("--by", "ada"), "fork"),
        (("--session", "support-42"), "fork"),
        (("--process", "research"), "cancel"),
    ):
        assert [act["verb"] for act in values("acts", "ls", *chosen, url=seeded.url)] == [verb]
    refused = run("acts", "ls", "--session", "support-42", "--process", "research-7", url=seeded.url)
    assert (refused.returncode, "not both" in refused.stderr) == (2, True)
    assert run("acts", "ls", "--by", "eve", url=seeded.url).stderr == "no acts\n"


def test_a_rerun_is_started_once_under_an_id(seeded: Seeded) -> None:
    """The new process has the input of the first and names it; without an id there is another each time."""
    for _ in range(2):
        assert output("rerun", "research-7", "--id", "again", "-q", url=seeded.url) == "again\n"
    (again,) = [each for each in values("ps", "-a", url=seeded.url) if each["process_id"] == "again"]
    assert again["registration"]["provenance"]["rerun_of"] == "research-7"
    assert run("rerun", "research-7", "--id", "research-7", url=seeded.url).returncode == 2
    assert run("rerun", "unknown", url=seeded.url).returncode == 3
    first, *_ = values("acts", "ls", "--process", "research-7", url=seeded.url)
    assert (first["verb"], first["target"], first["error"]) == ("rerun", "research-7", "InvalidInput")
