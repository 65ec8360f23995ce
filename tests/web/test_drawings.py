"""Drawings: throughput, the graph of a session, the timeline of a run."""

from __future__ import annotations

import pytest

from lash.model.maintenance import Throughput
from lash.model.session.trace import TraceStep, TurnTrace
from lash.web.graph import Drawing, anchor, laid_out
from lash.web.series import series
from lash.web.timeline import TimelineBar, duration, lost_attempts, timeline, trace_bars
from tests.factories.session import node

MINUTE_MS = 60_000


def test_throughput_has_a_bar_for_each_kind_that_ended() -> None:
    """Turns and failures of a minute are two bars with one text; an empty minute has none. The label has the sums."""
    drawn = str(
        series(
            (
                Throughput(at_ms=0, turns=4),
                Throughput(at_ms=MINUTE_MS),
                Throughput(at_ms=2 * MINUTE_MS, turns=2, dead=1, processes=3, failed=2),
            ),
            "minute",
        )
    )
    assert 'aria-label="6 turns and 3 failures, by minute"' in drawn
    assert (drawn.count('class="turns"'), drawn.count('class="failures"')) == (2, 1)
    assert "1970-01-01T00:02:00.000Z: 2 turns, 3 failures" in drawn
    assert "4 turns in the busiest minute" in drawn
    assert "3 failures in the worst minute" in drawn
    heights = [float(part.partition('height="')[2].partition('"')[0]) for part in drawn.split('class="turns"')[1:]]
    assert heights[0] == 2 * heights[1]


def test_one_failure_among_many_turns_is_seen() -> None:
    """A bar is never thinner than two units, and a storage in which nothing happened is drawn too."""
    drawn = str(series((Throughput(at_ms=0, turns=10_000), Throughput(at_ms=MINUTE_MS, turns=1)), "minute"))
    assert drawn.count('height="2.0"') == 1
    assert "0 turns and 0 failures" in str(series((), "minute"))


def test_a_graph_has_a_column_for_each_branch() -> None:
    """The first child continues the column of its parent; a second one begins a new column."""
    nodes = (node("a", None), node("b", "a"), node("c", "b"), node("d", "b"), node("e", "a"))
    dots = laid_out(nodes, nodes[:3])
    assert [(dot.node.node_id, dot.column, dot.parent, dot.is_active) for dot in dots] == [
        ("a", 0, None, True),
        ("b", 0, 0, True),
        ("c", 0, 1, True),
        ("d", 1, 1, False),
        ("e", 2, 0, False),
    ]


def test_dots_lead_to_their_messages() -> None:
    """A message on the page is an anchor; one on another branch is the page of that branch, and a fork is a session."""
    nodes = (node("a", None, "the secret"), node("b", "a", "yes"), node("c", "a", "no"))
    drawing = Drawing("s/1", {"a", "b"}, {"b": "forked"}, lambda text: text.replace("secret", "•••"))
    drawn = str(drawing.draw(laid_out(nodes, nodes[:2])))
    assert f'href="#{anchor("a")}"' in drawn
    assert f'href="#{anchor("b")}"' in drawn
    assert 'href="session?id=s%2F1&amp;leaf=c"' in drawn
    assert 'href="session?id=forked"' in drawn
    assert "the •••" in drawn
    assert "secret" not in drawn


def _step(
    name: str, began: int, took: int, attempt: int = 1, *, kind: str = "step", error: str | None = None
) -> TraceStep:
    return TraceStep(name=name, began_at_ms=began, took_ms=took, attempt=attempt, kind=kind, error=error)


@pytest.mark.parametrize(
    ("failures", "crashes", "texts"),
    [(0, 1, ["attempt 1 crashed"]), (1, 0, ["attempt 1 failed"]), (1, 1, ["attempt 1 ended", "attempt 2 ended"])],
)
def test_a_lost_attempt_is_a_mark(failures: int, crashes: int, texts: list[str]) -> None:
    """It is where the last step of the attempt ended, or where the attempt after it began."""
    steps = (_step("find", 100, 50), _step("pay", 900, 10, 2))
    attempts = failures + crashes + 1
    bars = trace_bars(TurnTrace(began_at_ms=950, attempts=attempts, failures=failures, crashes=crashes, steps=steps))
    marks = [(bar.name, bar.began_ms, bar.tone) for bar in bars if bar.is_mark]
    assert marks == [(text, at, "bad") for text, at in zip(texts, (150, 950), strict=False)]


def test_a_pause_starts_the_count_of_attempts_again() -> None:
    """A lower attempt after a higher one is not a loss: attempts of a process are counted from its last pause."""
    assert lost_attempts([(2, 50, 60), (1, 0, 10), (1, 100, 110)], "crashed") == [
        TimelineBar("attempt 1 crashed", 10, 10, "bad", is_mark=True)
    ]


def test_a_timeline_shows_durations_pauses_and_errors() -> None:
    """A bar has its duration behind it; a wait has a tone of its own, and a failed step the tone of failures."""
    trace = TurnTrace(
        began_at_ms=0,
        steps=(
            _step("find", 0, 2_500),
            _step("approval", 2_500, 7_500_000, kind="await_event"),
            _step("pay", 9_000_000, 30, error="card 4111 refused"),
        ),
    )
    drawn = str(timeline(trace_bars(trace), lambda text: text.replace("4111", "•")))
    assert [f">{text}</text>" in drawn for text in ("2.5 s", "2.08 h", "30 ms")] == [True] * 3
    assert [drawn.count(f'class="bar {tone}"') for tone in ("good", "wait", "bad")] == [1, 1, 1]
    assert "card • refused" in drawn
    assert "4111" not in drawn


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (119_000, "119 s"), (120_000, "2 min")]
)
def test_durations(milliseconds: int, text: str) -> None:
    """A duration has the unit in which it is short."""
    assert duration(milliseconds) == text
