"""Formatting of values: pure functions, at their edges."""

from __future__ import annotations

import pytest

from lash.cli.output import Line, escaped, json_line, one_line
from lash.cli.table import Column, draw
from lash.cli.text import age, moment, plural, shortened, size, width_of
from lash.cli.url import redacted, scrub, without_password
from lash.model.process.process import Projection

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("ago_ms", "expected"),
    [
        (0, "0s"),
        (999, "0s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (61_000, "1m1s"),
        (119_000, "1m59s"),
        (120_000, "2m"),
        (HOUR + 5 * 60_000, "1h5m"),
        (29 * HOUR, "1d5h"),
        (48 * HOUR, "2d"),
        (364 * DAY, "364d"),
        (365 * DAY, "1y"),
        (-500, "0s"),
        (-61_000, "+1m1s"),
        (-17 * HOUR, "+17h"),
        (-(3 * DAY - 20), "+3d"),
        (-(3 * DAY - 14 * HOUR), "+2d"),
        (-(59_600), "+1m"),
        (-(2 * HOUR - 1), "+2h"),
        (-(119 * 60_000 + 31_000), "+2h"),
        (-(47 * HOUR + 40 * 60_000), "+2d"),
    ],
)
def test_ages_say_what_matters(ago_ms: int, expected: str) -> None:
    """An age has one unit, or two if one is too coarse; a future moment has a plus sign."""
    assert age(1_000 * DAY - ago_ms, 1_000 * DAY) == expected


def test_no_moment_has_no_age() -> None:
    """A missing moment is a dash."""
    assert age(None) == "-"


@pytest.mark.parametrize(
    ("count", "expected"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 * 1024**4, "5.0 TiB")],
)
def test_sizes(count: int | None, expected: str) -> None:
    """Bytes are shown in the unit that fits."""
    assert size(count) == expected


def test_moments_are_utc_to_the_millisecond() -> None:
    """A moment is written so that text order is time order."""
    assert moment(0) == "1970-01-01T00:00:00.000Z"
    assert moment(1_709_209_815_123) == "2024-02-29T12:30:15.123Z"


def test_counts_have_their_noun() -> None:
    """Singular and plural are right, and large numbers have commas."""
    assert [plural(1, "row"), plural(0, "row"), plural(1_200, "batch", "batches")] == [
        "1 row",
        "0 rows",
        "1,200 batches",
    ]


def test_harmless_text_is_left_alone() -> None:
    """Letters of all languages and emoji stay; cursor movement and invisible characters are escaped."""
    assert escaped("grüße 你好 👨‍👩‍👧 نمی‌خواهم") == "grüße 你好 👨‍👩‍👧 نمی‌خواهم"
    assert one_line("a\tb\nc\rd") == "a b c d"
    assert escaped("a\tb\nc\rd") == "a\tb\\nc\\rd"
    assert escaped("\x1b[0m\x00\u202e\u200b\x9b") == "\\x1b[0m\\x00\\u202e\\u200b\\x9b"


def test_widths_count_columns() -> None:
    """Wide letters take two columns, combining marks none, and a cut text fits."""
    assert [width_of("abc"), width_of("你好"), width_of("e\u0301")] == [3, 4, 1]
    assert [shortened("abcdef", 4), shortened("你好吗", 4), shortened("abc", 3)] == ["abc…", "你…", "abc"]


def drawn(columns: tuple[Column, ...], rows: list[tuple[str, ...]], width: int | None = None) -> list[str]:
    """Return the lines of a table as texts."""
    return [_text(line) for line in draw(columns, rows, width=width)]


def _text(line: Line) -> str:
    return line if isinstance(line, str) else "".join(piece.text for piece in line)


def test_tables_align_wide_letters() -> None:
    """Columns start at the same position, whatever precedes them."""
    columns = (Column("NAME"), Column("N", right=True), Column("TEXT", stretch=True))
    assert drawn(columns, [("你好", "7", "x"), ("a", "10", "")]) == [
        "NAME    N   TEXT",
        "你好    7   x",
        "a      10   -",
    ]


def test_narrow_tables_cut_what_stretches() -> None:
    """The widest text is cut first, down to a minimum; other columns keep their width."""
    columns = (Column("ID"), Column("A", stretch=True), Column("B", stretch=True))
    (_heading, line) = drawn(columns, [("i" * 10, "a" * 30, "b" * 50)], width=60)
    assert line == f"{'i' * 10}   {'a' * 21}…   {'b' * 21}…"
    (_heading, line) = drawn(columns, [("i" * 10, "a" * 30, "b" * 50)], width=5)
    assert line == f"{'i' * 10}   {'a' * 11}…   {'b' * 11}…"


def test_json_has_every_field() -> None:
    """JSON includes fields with default values, which the stored form omits."""
    assert json_line(Projection()).startswith('{"status":"running","outcome":null,"wait":null,')


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://ada:pw12@h:1/d?schema=s", "postgresql://ada:***@h:1/d?schema=s"),
        ("postgresql://ada:p@w@h/d", "postgresql://ada:***@h/d"),
        ("postgresql://ada@h/d?password=pw&x=1", "postgresql://ada@h/d?password=***&x=1"),
        ("postgresql://ada@h/d?sslpassword=pw", "postgresql://ada@h/d?sslpassword=***"),
        (
            "postgresql://ada:pw12@h/d?listen_url=postgresql%3A%2F%2Fbob%3Apw34%40i%2Fd&schema=s",
            "postgresql://ada:***@h/d?listen_url=postgresql://bob:***@i/d&schema=s",
        ),
        (
            "postgresql://ada@h/d?listen_url=postgresql://bob:pw34@i/d?password=pw56",
            "postgresql://ada@h/d?listen_url=postgresql://bob:***@i/d?password=***",
        ),
        ("sqlite:///a.db", "sqlite:///a.db"),
    ],
)
def test_passwords_are_hidden_in_urls(url: str, expected: str) -> None:
    """Everything but the password stays readable."""
    assert redacted(url) == expected


def test_secrets_are_hidden_in_any_text() -> None:
    """A message that quotes the password, encoded or not, is masked."""
    url = "postgresql://ada:p%40ss-word@h/d"
    text = f"cannot open {url}: p@ss-word or p%40ss-word is wrong"
    assert scrub(text, url) == "cannot open postgresql://ada:***@h/d: *** or *** is wrong"
    assert scrub("as it is", None) == "as it is"
    nested = "postgresql://h/d?listen_url=postgresql%3A%2F%2Fbob%3As3cret-word%40i%2Fd"
    assert scrub("s3cret-word is wrong", nested) == "*** is wrong"


def test_other_programs_get_a_url_without_the_password() -> None:
    """Host, port and database stay."""
    assert without_password("postgresql://ada:pw@h:1/d?host=%2Ftmp&password=x") == "postgresql://ada@h:1/d?host=%2Ftmp"
