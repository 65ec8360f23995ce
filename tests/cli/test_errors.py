"""Errors: one line, a meaningful exit code, and no secrets."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.backends import with_parameters
from tests.cli.kit import command, environment, run
from tests.cli.seed import Seeded
from tests.raw import raw

SECRET = "s3cr3t-pass"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("sessions", "show", "unknown"), 3),
        (("sessions", "tree", "unknown"), 3),
        (("sessions", "fork", "unknown", "new"), 3),
        (("sessions", "rm", "unknown", "--yes"), 3),
        (("logs", "unknown"), 3),
        (("logs", "unknown", "--tail", "3"), 3),
        (("logs", "unknown", "--follow"), 3),
        (("signal", "unknown", "go"), 3),
        (("cancel", "unknown"), 3),
        (("effects", "ls", "unknown"), 3),
        (("effects", "ls", "--session", "unknown", "--turn", "t"), 3),
        (("queue", "ls", "unknown"), 3),
        (("queue", "requeue", "unknown", "b"), 3),
        (("triggers", "disable", "unknown"), 3),
        (("waits", "resolve", "tampered"), 3),
        (("signal", "report-3", "go"), 2),
        (("signal", "research-7", "approve", "{"), 2),
        (("sessions", "show", ""), 2),
        (("sessions", "ls", "--limit", "0"), 2),
        (("sessions", "ls", "extra"), 2),
        (("ps", "--status", "odd"), 2),
        (("cancel",), 2),
        (("cancel", "research-7", "--session", "support-42"), 2),
        (("effects", "ls"), 2),
        (("queue", "requeue", "support-42"), 2),
        (("waits", "resolve", "-", "-"), 2),
        (("nothing",), 2),
        (("sessions", "nothing"), 2),
        (("ps", "--nothing"), 2),
    ],
)
def test_a_mistake_is_one_line_and_a_code(arguments: tuple[str, ...], code: int, seeded: Seeded) -> None:
    """Every error leaves standard output empty and writes one line without a traceback to standard error."""
    ended = run(*arguments, url=seeded.url)
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert ended.stderr.startswith("lash: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (None, "no storage given; use --url or set LASH_URL"),
        ("", "no storage given; use --url or set LASH_URL"),
        ("agents.db", "expected a URL that begins with sqlite:/// or postgresql://, got no scheme"),
        ("mysql://u:p@h/d", "got the scheme 'mysql'"),
        ("sqlite://", "is in the memory of one program"),
        ("sqlite:///:memory:", "is in the memory of one program"),
        ("sqlite:///no/such/directory/a.db", "no storage at this URL"),
        ("sqlite:///a.db?odd=1", "unknown option 'odd' of a sqlite URL"),
        ("postgresql://h:x/d", "malformed"),
        ("postgresql://h/d?odd=1", "unknown PostgreSQL option 'odd'"),
    ],
)
def test_a_url_that_names_no_storage_is_explained(url: str | None, message: str, tmp_path: Path) -> None:
    """The message says what is wrong with the URL, or that it is missing."""
    ended = run("ps", url=url, cwd=tmp_path)
    assert ended.returncode == (6 if "no/such" in (url or "") else 2), ended.stderr
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_option_beats_the_variable_on_either_side(tmp_path: Path) -> None:
    """--url works before and after the command's name, and takes precedence over LASH_URL."""
    url = f"sqlite:///{tmp_path / 'here.db'}"
    assert run("init", "--url", url, url="postgresql://nowhere/none").returncode == 0
    assert run("--url", url, "--json", "ps", url="postgresql://nowhere/none").returncode == 0
    assert run("ps", "--url", url, "--url", "sqlite:///other.db", url=url).returncode == 6


def _free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        port: int = asking.getsockname()[1]
        return port


@pytest.mark.parametrize("debug", [(), ("--debug",)])
@pytest.mark.parametrize(
    "shape",
    [
        "postgresql://ada:{secret}@127.0.0.1:{port}/agents",
        "postgresql://ada@127.0.0.1:{port}/agents?password={secret}",
        "postgresql://ada:{secret}@127.0.0.1:{port}/agents?nonsense=1",
        "postgresql://127.0.0.1:{port}/agents?listen_url=postgresql%3A%2F%2Fada%3A{secret}%40127.0.0.1%2Fagents",
        "postgresql://ada:{secret}@host@127.0.0.1:{port}/agents",
        "postgres:/ada:{secret}@127.0.0.1/agents",
        "sqlite://ada:{secret}@127.0.0.1/agents.db",
    ],
)
def test_no_password_is_ever_printed(shape: str, debug: tuple[str, ...], tmp_path: Path) -> None:
    """Neither messages nor tracebacks nor the doctor show the password of the URL."""
    url = shape.format(secret=SECRET, port=_free_port())
    for arguments in (("init",), ("doctor",)):
        ended = run(*arguments, *debug, url=url, cwd=tmp_path)
        assert ended.returncode != 0
        assert SECRET not in ended.stdout + ended.stderr, (arguments, ended)


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    """The exit code shows a script that a retry may help."""
    ended = run("ps", url=f"postgresql://ada@127.0.0.1:{_free_port()}/agents")
    assert ended.returncode == 5, ended.stderr
    assert "127.0.0.1" in ended.stderr


def test_debug_shows_where_an_error_came_from(seeded: Seeded) -> None:
    """Only --debug shows a traceback; the error line comes last."""
    ended = run("sessions", "show", "unknown", "--debug", url=seeded.url)
    assert ended.returncode == 3
    assert ended.stderr.startswith("Traceback")
    assert ended.stderr.splitlines()[-1] == "lash: session 'unknown' does not exist; see lash sessions ls"


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """A file that is not a storage is refused and not changed."""
    text = tmp_path / "notes.db"
    text.write_text("these are notes\n" * 100)
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    for file in (text, other):
        before = file.read_bytes()
        for arguments in (("ps",), ("init",), ("db", "migrate")):
            assert run(*arguments, url=f"sqlite:///{file}").returncode == 6
        assert file.read_bytes() == before


async def test_a_newer_schema_is_refused(seeded: Seeded) -> None:
    """An old command does not touch a storage that a newer version has migrated."""
    await raw(seeded.url, "INSERT INTO lash_migrations SELECT 9999, 'future', 1")
    ended = await asyncio.to_thread(run, "ps", url=seeded.url)
    assert ended.returncode == 6
    assert "9999" in ended.stderr


async def test_damage_is_told_and_never_left_out(seeded: Seeded) -> None:
    """An unreadable node fails the command that needs it, and `db check` names it and what to do."""
    await raw(seeded.url, "UPDATE lash_nodes SET body = '{' WHERE node_id = 'kind'")
    shown = await asyncio.to_thread(run, "sessions", "show", "support-42", url=seeded.url)
    assert shown.returncode == 1
    checked = await asyncio.to_thread(run, "db", "check", "--json", url=seeded.url)
    assert checked.returncode == 1
    (finding,) = msgspec.json.decode(checked.stdout)["findings"]
    assert finding["where"] == "node 'kind' of session 'support-42'"
    assert "node 'kind'" in finding["problem"]
    assert "restore the session from a backup" in finding["remedy"]
    assert checked.stderr == "lash: found 1 problem\n"


def test_doctor_finds_what_is_wrong(seeded: Seeded, tmp_path: Path) -> None:
    """A storage of this version passes; a missing one fails, and the other checks still run."""
    well = run("doctor", url=seeded.url)
    assert (well.returncode, well.stderr) == (0, "")
    for expected in ("connection", "schema", "durability         ok      durable", "clock              ok"):
        assert expected in well.stdout
    assert ("0 live workers need at least 0" in well.stdout) == seeded.url.startswith("postgresql")
    ill = run("doctor", url=f"sqlite:///{tmp_path / 'none.db'}")
    assert (ill.returncode, ill.stderr) == (1, "lash: 1 check failed: connection\n")
    assert "lash init" in ill.stdout
    none = run("doctor")
    assert (none.returncode, none.stderr) == (1, "lash: 1 check failed: url\n")


def test_doctor_finds_the_other_distribution(tmp_path: Path) -> None:
    """A distribution named ``lash`` that installed files into the package is a failure, with the remedy."""
    directory = tmp_path / "lash-1.3.1.dist-info"
    directory.mkdir()
    (directory / "METADATA").write_text("Metadata-Version: 2.1\nName: lash\nVersion: 1.3.1\n")
    for installed, is_over in (("_lash.pth,,\n", False), ("lash/__init__.py,,\n", True)):
        (directory / "RECORD").write_text(installed)
        variables = environment()
        variables["PYTHONPATH"] = os.pathsep.join((str(tmp_path), variables["PYTHONPATH"]))
        ended = subprocess.run(command("doctor"), env=variables, capture_output=True, text=True, check=False)
        assert ("pip install --force-reinstall lash-runtime" in ended.stdout) is is_over, ended


def test_without_click_the_command_says_what_to_install() -> None:
    """An installation without click gets one line, not a traceback."""
    program = "import sys; sys.modules['click'] = None; from lash.cli.main import main; sys.exit(main(['ps']))"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "lash: the lash command needs click: pip install 'click>=8.1'\n"


def test_without_the_postgres_extra_the_command_says_what_to_install() -> None:
    """A plain installation works on SQLite, and says what PostgreSQL needs."""
    program = "import sys; sys.modules['asyncpg'] = None; from lash.cli.main import main; sys.exit(main(['ps']))"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment({"LASH_URL": "postgresql://h/d"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "lash-runtime[postgres]" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_pending_migrations_are_told_with_the_command_to_run(tmp_path: Path) -> None:
    """A storage of an older version is not migrated implicitly."""
    from lash.sqlite.schema import APPLICATION_ID, MIGRATIONS
    from lash.sqlkit.migrations import load_migrations

    file = tmp_path / "old.db"
    connection = apsw.Connection(str(file))
    (first, *_) = load_migrations(MIGRATIONS)
    connection.execute(first.statement)
    connection.execute("INSERT INTO lash_migrations VALUES (1, ?, 1)", (first.name,))
    connection.pragma("application_id", APPLICATION_ID)
    connection.close()
    url = f"sqlite:///{file}"
    ended = run("ps", url=url)
    assert ended.returncode == 6
    assert "apply them with: lash db migrate" in ended.stderr
    assert run("db", "migrate", url=url).returncode == 0
    assert run("ps", url=url).returncode == 0


def test_json_errors_leave_standard_output_empty(seeded: Seeded) -> None:
    """A program that reads JSON never has to parse an error message."""
    ended = run("sessions", "show", "unknown", "--json", url=seeded.url)
    assert (ended.returncode, ended.stdout) == (3, "")


def test_a_schema_of_ones_own_is_a_storage_of_its_own(postgres_schema_url: str) -> None:
    """The schema in the URL selects the storage."""
    assert run("init", url=postgres_schema_url).returncode == 0
    assert run("ps", url=with_parameters(postgres_schema_url, schema="lash_of_nobody")).returncode == 6
