"""The repository's own rules: ``python -m tools.check_repository``, as ``make check`` does.

Each rule is a function from a `Repository` to findings. A finding of a rule fails the check; a finding of a report
is only printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.compile_rules import postgres_compiles, sqlite_compiles
from tools.language_rules import prose_is_plain
from tools.python_rules import (
    long_files_and_functions,
    no_sql_from_strings,
    nothing_runs_data,
    typed_reads_are_prepared,
)
from tools.repository import Finding, Repository, Rule
from tools.shell_rules import rows_have_the_same_files, shell_equality, shells_are_written_once
from tools.sql_rules import (
    additive_migrations_add,
    backends_agree,
    queries_are_used_and_exist,
    queries_say_their_purpose,
    sql_is_well_formed,
)
from tools.text_rules import decisions_are_numbered, nothing_left_to_do
from tools.write_language_page import language_page_is_current

RULES: Final[tuple[Rule, ...]] = (
    sql_is_well_formed,
    queries_say_their_purpose,
    backends_agree,
    additive_migrations_add,
    queries_are_used_and_exist,
    no_sql_from_strings,
    nothing_runs_data,
    typed_reads_are_prepared,
    nothing_left_to_do,
    prose_is_plain,
    decisions_are_numbered,
    rows_have_the_same_files,
    shells_are_written_once,
    language_page_is_current,
    sqlite_compiles,
    postgres_compiles,
)
REPORTS: Final[tuple[Rule, ...]] = (long_files_and_functions, shell_equality)


def findings(repository: Repository, rules: Iterable[Rule]) -> list[Finding]:
    """Return all findings, rule by rule."""
    return [finding for rule in rules for finding in sorted(rule(repository))]


def main() -> int:
    """Check the tree in the current directory; the exit status is 0 if every rule holds."""
    repository = Repository(Path.cwd())
    for note in findings(repository, REPORTS):
        print(f"note: {note}")
    broken = findings(repository, RULES)
    for finding in broken:
        print(finding)
    print(f"{len(RULES)} rules, {len(broken)} findings")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
