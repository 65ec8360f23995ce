"""SQL that is built in Python is found, whatever the way."""

from pathlib import Path

import pytest

from tests.repository.trees import messages, places, tree
from tools.python_rules import (
    long_files_and_functions,
    no_sql_from_strings,
    nothing_runs_data,
    typed_reads_are_prepared,
)

BUILT = [
    'sql = f"SELECT * FROM {table}"',
    'sql = f"select a from {table}"',
    'sql = f"""\n    UPDATE {table}"""',
    'sql = "DELETE FROM %s" % table',
    'sql = "INSERT INTO {} VALUES (1)".format(table)',
    'sql = "INSERT INTO " + table',
    'sql = "WITH a AS (" + inner + ") SELECT 1"',
    'sql = f"PRAGMA cache_size = {size}"',
    'sql = "SELECT 1 FROM t"\nsql += " WHERE a = 1"',
    'cursor.execute(f"{statement}")',
    "cursor.execute(start + ' LIMIT 1')",
    'await connection.fetch(f"{verb} 1")',
]
HARMLESS = [
    'sql = "SELECT 1"',
    'cursor.execute("PRAGMA foreign_keys = ON")',
    "cursor.execute(queries[name])",
    'message = f"create the session {name} first"',
    'message = f"the update of {name} failed"',
    'message = f"delete {name}"',
    "total = first + second",
    'text = "a" + "b"',
    "rest = count % 7",
    'count += "x"',
]


@pytest.mark.parametrize("code", BUILT)
def test_built_sql_is_found(tmp_path: Path, code: str) -> None:
    """One finding, in the file that builds it."""
    repository = tree(
        tmp_path, {"src/lash/sqlite/rows/session/session.py": "async def work():\n    " + code.replace("\n", "\n    ")}
    )
    assert [path for path, _ in places(list(no_sql_from_strings(repository)))] == [
        "src/lash/sqlite/rows/session/session.py"
    ]


@pytest.mark.parametrize("code", HARMLESS)
def test_other_text_is_left_alone(tmp_path: Path, code: str) -> None:
    """Constant statements, named queries and ordinary sentences are not findings."""
    repository = tree(tmp_path, {"src/lash/sqlite/rows/session/session.py": code})
    assert messages(no_sql_from_strings, repository) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from marshal import loads",
        "import yaml.constructor",
        "x = eval(text)",
        "exec(text)",
        "code = compile(text, '', 'exec')",
        "__import__(name)",
        "os.system(text)",
        "from os import popen",
        "subprocess.run(text, shell=True)",
        "subprocess.run(text, shell=flag)",
        "asyncio.create_subprocess_shell(text)",
    ],
)
def test_what_runs_data_is_found(tmp_path: Path, code: str) -> None:
    """Each way to turn data into code, or text into a command, is one finding."""
    repository = tree(tmp_path, {"src/lash/runtime/steps/values.py": f"def work():\n    {code}\n"})
    assert places(list(nothing_runs_data(repository))) == [("src/lash/runtime/steps/values.py", 2)]


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "re.compile(text)",
        "from os import path",
        "subprocess.run(words, shell=False)",
        "connection.execute(x)",
    ],
)
def test_what_runs_no_data_is_left_alone(tmp_path: Path, code: str) -> None:
    """Look-alikes are not findings."""
    repository = tree(tmp_path, {"src/lash/runtime/steps/values.py": code})
    assert messages(nothing_runs_data, repository) == []


def test_the_finding_names_the_line(tmp_path: Path) -> None:
    """The finding has the line number."""
    repository = tree(tmp_path, {"src/lash/a.py": 'x = 1\n\nsql = f"DROP TABLE {x}"\n'})
    assert places(list(no_sql_from_strings(repository))) == [("src/lash/a.py", 3)]


def test_long_files_and_functions_are_reported(tmp_path: Path) -> None:
    """A file or function at the limit passes; one line more is reported."""
    files = {
        "src/lash/fine.py": "def fine():\n" + "    1\n" * 59 + "1\n" * 340,
        "src/lash/long.py": "x = 1\ndef long():\n" + "    1\n" * 60 + "1\n" * 339,
    }
    repository = tree(tmp_path, files)
    assert places(list(long_files_and_functions(repository))) == [("src/lash/long.py", 0), ("src/lash/long.py", 2)]


@pytest.mark.parametrize(
    "code",
    [
        "value = msgspec.convert(given, Kind)",
        "value = msgspec.json.decode(text, type=Kind)",
        "value = msgspec.msgpack.decode(content, type=list[Kind])",
        "decoder = msgspec.json.Decoder(Kind)",
        "decoder = msgspec.json.Decoder(type=Kind)",
    ],
)
def test_a_typed_read_beside_the_prepared_ones_is_found(tmp_path: Path, code: str) -> None:
    """A module that lets msgspec read a type without preparing it is a finding."""
    repository = tree(tmp_path, {"src/lash/plan/wait.py": code})
    assert places(list(typed_reads_are_prepared(repository))) == [("src/lash/plan/wait.py", 1)]


@pytest.mark.parametrize(
    "code", ["msgspec.json.decode(text)", "msgspec.json.Decoder().decode(text)", "msgspec.json.encode(value)"]
)
def test_reads_without_a_type_are_left_alone(tmp_path: Path, code: str) -> None:
    """Plain JSON needs no preparation, and neither does writing."""
    assert messages(typed_reads_are_prepared, tree(tmp_path, {"src/lash/plan/wait.py": code})) == []
