"""Code that both backends repeat is measured, and a repeated check or plan call is found."""

from pathlib import Path

from tests.repository.trees import messages, places, tree
from tools.shell_rules import (
    MOST_EQUAL,
    Equality,
    equality,
    rows_have_the_same_files,
    shell_equality,
    shells_are_written_once,
)

SQLITE = '''"""The rows of notes on SQLite."""

import asyncio


class SQLiteNoteRows:
    """The notes of one SQLite storage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def tables(self) -> tuple[str, ...]:
        return ("notes", "names")

    async def put(self, name: str) -> SQLiteNote:
        # A comment that both have is not code.
        if not name:
            return None
        stored = self._database.write(name)
        return encode_note(stored, name)
'''
POSTGRES = (
    SQLITE.replace("SQLite", "Postgres")
    .replace("self._database.write(name)", 'await self._database.write_one("note_put", name)')
    .replace('("notes", "names")', '("notes", "names", "more")')
)


def test_the_same_code_counts_as_equal(tmp_path: Path) -> None:
    """Prefixes, await and async do not matter; headers, docstrings, imports, comments and short lines do not count."""
    repository = tree(tmp_path, {"{sqlite}/rows/note.py": SQLITE, "{postgres}/rows/note.py": POSTGRES})
    assert equality(repository) == Equality(equal=1, counted=3)
    awaited = SQLITE.replace("SQLite", "Postgres").replace("= self._database", "= await self._database")
    repository = tree(tmp_path, {"{postgres}/rows/note.py": awaited})
    assert equality(repository) == Equality(equal=3, counted=3)


def test_a_line_counts_as_often_as_both_have_it(tmp_path: Path) -> None:
    """A line that stands twice on PostgreSQL and once on SQLite counts once, in whichever files."""
    line = "value = compute_the_value(1)\n"
    repository = tree(
        tmp_path, {"{sqlite}/rows/one.py": line, "{postgres}/rows/one.py": line, "{postgres}/rows/two.py": line}
    )
    assert equality(repository) == Equality(equal=1, counted=2)


def test_too_much_equal_code_is_found(tmp_path: Path) -> None:
    """The rule allows the limit and no more; the report states the share in either case."""
    shared, own = "value = shared_between_both(1)\n", "".join(f"value_{n} = only_here({n})\n" for n in range(100, 109))
    repository = tree(tmp_path, {"{sqlite}/rows/a.py": shared, "{postgres}/rows/a.py": shared + own})
    assert equality(repository).share == MOST_EQUAL
    assert messages(shells_are_written_once, repository) == []
    assert messages(shell_equality, repository) == [
        "10.0% of the lines stand in sqlite/rows too (1 of 10); at most 10% may"
    ]
    repository = tree(tmp_path, {"{postgres}/rows/a.py": shared})
    assert messages(shells_are_written_once, repository) == [
        "100.0% of the lines stand in sqlite/rows too (1 of 1); move what both do to backend/"
    ]


def test_a_check_or_plan_call_in_both_trees_is_found(tmp_path: Path) -> None:
    """The call is found under any alias; calls in one tree, row types and other functions of plan are allowed."""
    sqlite = "from lash.plan.note import plan_note as decide, check_name, NoteRow, decode_note\nplan = decide(1)\n"
    sqlite += "check_name(2)\nrow = NoteRow(decode_note(3))\n"
    postgres = "from lash.plan.note import plan_note, decode_note, NoteRow\nfrom lash.base.limits import check_text\n"
    postgres += "\nfound = plan_note(facts, now_ms)\nvalues = [NoteRow(decode_note(4)), check_text('a', b)]\n"
    repository = tree(tmp_path, {"{sqlite}/rows/note.py": sqlite, "{postgres}/rows/queue/note.py": postgres})
    found = list(shells_are_written_once(repository))
    assert places(found) == [("src/lash/postgres/rows/queue/note.py", 4)]
    assert (
        found[0].message
        == "lash.plan.note.plan_note is called in src/lash/sqlite/rows/note.py:2 too; call it in backend/"
    )


def test_a_file_of_one_backend_is_found(tmp_path: Path) -> None:
    """File names below both rows/ are equal, directories included; files beside rows/ are free."""
    repository = tree(
        tmp_path,
        {
            "{sqlite}/rows/queue/claim.py": "",
            "{postgres}/rows/claim.py": "",
            "{sqlite}/rows/note.py": "",
            "{postgres}/rows/note.py": "",
            "{postgres}/commit_form.py": "",
        },
    )
    assert places(list(rows_have_the_same_files(repository))) == [
        ("src/lash/sqlite/rows/claim.py", 0),
        ("src/lash/postgres/rows/queue/claim.py", 0),
    ]
