"""A framework's suite that is not the expected one fails ``make adapters``."""

from __future__ import annotations

import pytest

from tools.adapter_suites import Done, Suite, judged, judged_left_out, options_of

SUITE = Suite(
    name="core",
    sdist="framework",
    plugin="plugin",
    arguments=["tests", "more_tests", "-p", "no:x", "-k", "one or two", "--timeout", "9"],
    passed=10,
    skipped=1,
    left_out={"a": "", "b": ""},
)


def ended(summary: str, code: int = 0) -> Done:
    return Done(code, f"....\n{summary} in 1.23s\n", 1.0)


@pytest.mark.parametrize(
    ("summary", "code", "found", "chosen", "is_good"),
    [
        ("10 passed, 1 skipped", 0, 11, 11, True),
        ("9 passed, 2 skipped", 0, 11, 11, False),
        ("11 passed", 0, 11, 11, False),
        ("11 passed, 1 skipped", 0, 12, 12, False),
        ("9 passed, 1 skipped", 0, 10, 10, False),
        ("9 passed, 1 skipped, 1 failed", 1, 11, 11, False),
        ("9 passed, 1 skipped, 1 xpassed", 0, 11, 11, False),
        ("no tests ran", 5, 0, 0, False),
        ("4 passed, 7 deselected", 0, 11, 4, True),
        ("3 passed, 1 skipped", 0, 11, 4, True),
        ("2 passed, 2 skipped", 0, 11, 4, False),
        ("4 passed, 8 deselected", 0, 12, 4, False),
    ],
)
def test_every_difference_of_a_suite_is_a_failure(
    summary: str, code: int, found: int, chosen: int, *, is_good: bool
) -> None:
    """More or fewer tests, more or fewer that pass, none at all: also in a part of the suite."""
    assert judged(ended(summary, code), SUITE, found, chosen).is_good is is_good


@pytest.mark.parametrize(
    ("summary", "found", "is_good"),
    [
        ("2 failed", 2, True),
        ("3 failed, 1 error", 4, True),
        ("1 failed, 1 passed", 2, False),
        ("1 failed, 1 skipped", 2, False),
        ("no tests ran", 0, False),
    ],
)
def test_a_test_that_is_left_out_must_fail(summary: str, found: int, *, is_good: bool) -> None:
    """One that passes, or that upstream has renamed, must not stay in the list."""
    assert judged_left_out(ended(summary, 1), SUITE, found).is_good is is_good


def test_options_select_no_tests() -> None:
    """Tests that are left out run with the other options of their suite."""
    assert options_of(SUITE) == ["-p", "no:x", "--timeout", "9"]
