"""The page of results."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.kit.curve import nice_step
from benchmarks.kit.plot import plot
from benchmarks.kit.registry import load_all
from benchmarks.page import REMARKS, added, page, remarks

_RESULT = {
    "scenario": "sqlite-commit",
    "ours": 100.0,
    "other": 200.0,
    "ratio": 0.5,
    "unit": "calls/s",
    "versions": {"lash": "1"},
    "compared": "lash / apsw <&>",
    "ratios": [{"case": "lash / apsw", "ratio": 0.5}, {"case": "lash / C", "ratio": 0.25}],
    "rows": [
        {
            "contender": "lash",
            "case": "1 <caller>",
            "unit": "calls/s",
            "median": 100.0,
            "spread": 0.1,
            "values": [99.0],
        },
        {"contender": "apsw", "case": "1 caller", "unit": "calls/s", "median": 200.0, "spread": 0.1, "values": [200.0]},
    ],
    "notes": ["a note"],
    "group": "bare driver",
    "what": "turns committed",
    "better": "more",
    "target": "at least 0.6",
    "seconds": 2.0,
}


def test_the_page_shows_every_figure(tmp_path: Path) -> None:
    """Table, figures, further ratios, notes and versions are there, and the plot is well-formed."""
    document = {"machine": {"cores": 2}, "rounds": 5, "scale": 1.0, "results": [_RESULT]}
    text = "\n".join(page(document, tmp_path))
    for piece in ("| cores | 2 |", "**0.5**", "at least 0.6", "0.25 = lash / C", "a note", "lash 1; 2 s"):
        assert piece in text
    assert "shortened run" not in text
    assert ET.parse(tmp_path / "sqlite-commit.svg").getroot().tag.endswith("svg")


def test_a_short_run_is_told_as_such(tmp_path: Path) -> None:
    """Results of few rounds, or of little work, are not taken for a measurement."""
    document = {"machine": {}, "rounds": 2, "scale": 1.0, "results": [_RESULT]}
    assert "shortened run" in "\n".join(page(document, tmp_path))


def test_every_remark_is_about_a_scenario() -> None:
    """A remark under a name that no scenario has would never be shown."""
    known = remarks(REMARKS.read_text())
    assert known.keys() <= load_all().keys()
    assert all(known.values())


def test_a_remark_is_shown_with_its_scenario(tmp_path: Path) -> None:
    """What stands under the name of a scenario is on the page."""
    document = {"machine": {}, "rounds": 5, "scale": 1.0, "results": [_RESULT]}
    assert f"- {remarks(REMARKS.read_text())['sqlite-commit']}" in "\n".join(page(document, tmp_path)).splitlines()


def test_a_run_of_some_scenarios_is_added_to_the_page(tmp_path: Path) -> None:
    """Each result takes the place of the older one, or comes last, with its date; the others stay."""
    published = {"machine": {"cores": 2}, "rounds": 5, "scale": 1.0, "results": [_RESULT, {**_RESULT, "scenario": "b"}]}
    newer = [{**_RESULT, "scenario": "c"}, {**_RESULT, "ratio": 0.75, "date": "2026-11-16"}]
    document = added(published, newer)
    assert [(each["scenario"], each["ratio"]) for each in document["results"]] == [
        ("sqlite-commit", 0.75),
        ("b", 0.5),
        ("c", 0.5),
    ]
    assert "lash 1; 2 s; measured on 2026-11-16" in "\n".join(page(document, tmp_path))


def test_figures_over_workers_are_drawn_as_curves() -> None:
    """Each contender is a line through its figures, placed by their size, with its name at the end."""
    rows = [
        {
            "contender": name,
            "case": f"{at} workers",
            "unit": "calls/s",
            "median": at * 10.0,
            "values": [at * 9.0],
            "at": at,
        }
        for name in ("lash", "other <&>")
        for at in (1, 2, 4)
    ]
    root = ET.fromstring(plot({**_RESULT, "rows": [*rows, {"contender": "lash", "unit": "ms"}]}))
    lines = [each.attrib["points"].split() for each in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(lines) == 2
    points = [tuple(map(float, each.split(","))) for each in lines[0]]
    across, heights = zip(*points, strict=True)
    assert across[1] - across[0] == pytest.approx(across[2] - across[1])
    # Below the axis of 0 at 292, figures of 10, 20 and 40 have these heights.
    assert [292 - height for height in heights] == pytest.approx(
        [(292 - heights[2]) / 4 * n for n in (1, 2, 4)], abs=0.2
    )
    assert "other <&>: 40" in [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(("top", "step"), [(8.4, 2), (119, 25), (100, 25), (0.03, 0.005), (1_000, 250), (0, 1)])
def test_grid_lines_are_at_round_numbers(top: float, step: float) -> None:
    """Between four and ten lines fit below the highest figure."""
    assert nice_step(top) == pytest.approx(step)
