"""The page of results."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

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
