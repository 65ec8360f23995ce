"""How a soak is judged and displayed."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest

from tests.proof.soak.report import Line, page, plot
from tests.proof.soak.samples import FILES, LOG_BYTES, MEMORY_GROWTH_BYTES, ROWS, TASKS, Inside, Sample, unbounded


def _inside(number: int, **figures: int) -> Inside:
    calm = Inside(
        at_rest=True,
        rounds=number * 10,
        seconds=number,
        memory_bytes=50_000_000,
        files=20,
        tasks=8,
        turn_ms=3,
        slowest_turn_ms=9,
    )
    return msgspec.structs.replace(calm, **figures)


def _soak(**growth: int) -> list[Sample]:
    """Return a soak of ten rests in which the figures named grow by that much from rest to rest."""
    base = {"memory_bytes": 50_000_000, "files": 20, "tasks": 8}
    return [
        Sample(
            _inside(number, **{name: base[name] + number * growth.get(name, 0) for name in base}),
            rows={"lash_turns": 5 + number * growth.get("turns", 0), "lash_process_tombstones": number * 100},
            connections=10 + number * growth.get("connections", 0),
            log_bytes=growth.get("log_bytes", 0),
        )
        for number in range(10)
    ]


def test_a_calm_soak_is_bounded() -> None:
    """Figures that stay, and a table that may grow, are in order."""
    assert unbounded(_soak()) == []
    assert unbounded(_soak(files=FILES // 8, tasks=TASKS // 8, memory_bytes=MEMORY_GROWTH_BYTES // 8)) == []


@pytest.mark.parametrize(
    ("figure", "each", "what"),
    [
        ("turns", ROWS, "rows of lash_turns"),
        ("files", FILES, "open files"),
        ("tasks", TASKS, "tasks"),
        ("connections", 1, "connections"),
        ("memory_bytes", MEMORY_GROWTH_BYTES, "memory"),
        ("log_bytes", LOG_BYTES + 1, "write-ahead log"),
    ],
)
def test_what_grows_is_named(figure: str, each: int, what: str) -> None:
    """A figure that grows from rest to rest is reported, and no other."""
    (problem,) = unbounded(_soak(**{figure: each}))
    assert what in problem


def test_only_rests_are_compared() -> None:
    """Under load there may be more of everything."""
    busy = [Sample(_inside(number, at_rest=False, files=900), rows={"lash_turns": 900}) for number in range(5, 9)]
    calm = _soak()
    assert unbounded([*calm[:5], *busy, *calm[5:]]) == []


class _Tags(HTMLParser):
    """Counts what is in a page, and finds where it would load something from."""

    def __init__(self) -> None:
        super().__init__()
        self.plots = 0
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.plots += tag == "polyline"
        self.sources += [str(value) for name, value in attrs if name in {"src", "href"}]


def test_the_page_stands_alone() -> None:
    """It has a plot of each figure, the rows of each table, the problems, and loads nothing."""
    busy = Sample(_inside(3, at_rest=False), rows={"lash_turns": 7})
    text = page("Soak on <x>", [*_soak(), busy], ["rows of <table> grew"])
    tags = _Tags()
    tags.feed(text)
    assert (tags.plots, tags.sources) == (10, [])
    assert "Soak on &lt;x&gt;" in text
    assert "rows of &lt;table&gt; grew" in text
    assert "<td>lash_turns</td><td>5</td><td>5</td><td>7</td>" in text


def test_a_plot_begins_at_zero() -> None:
    """The largest value touches the top, and half of it is half as high."""
    assert 'points="8.0,90.0 632.0,8.0"' in plot(Line("x", "", [(0, 5), (10, 10)]))
    assert 'points="8.0,172.0"' in plot(Line("x", "", [(3, 0)]))
