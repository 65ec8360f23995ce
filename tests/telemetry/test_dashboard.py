"""The dashboard and the alert rules in ``deploy/`` use metrics and labels that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from lash.telemetry.figures import FIGURES, FigureKind
from lash.telemetry.prometheus import metric_name

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_SAMPLES: Final = frozenset(
    f"{metric_name(each)}{ending}"
    for each in FIGURES
    for ending in (("_bucket", "_sum", "_count") if each.kind is FigureKind.HISTOGRAM else ("",))
)
_LABELS: Final = {"instance", "gen_ai_request_model", "gen_ai_token_type"}
"""Labels that look like metrics, or that Prometheus adds."""


def _dashboard() -> list[str]:
    dashboard = json.loads((_DEPLOY / "grafana" / "lash.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def _rules() -> list[str]:
    return re.findall(r"^ +expr: (.+)$", (_DEPLOY / "prometheus" / "lash.rules.yaml").read_text(), re.MULTILINE)


@pytest.mark.parametrize("expressions", [_dashboard(), _rules()], ids=["dashboard", "rules"])
def test_expressions_name_metrics_that_exist(expressions: list[str]) -> None:
    """Every name in an expression is one that is served; nothing is looked for in vain."""
    assert len(expressions) > 5
    for expression in expressions:
        names = set(re.findall(r"\b(?:lash|gen_ai)_\w+", expression)) - _LABELS
        assert names, expression
        assert names <= _SAMPLES, expression


def test_the_dashboard_shows_every_metric() -> None:
    """A figure without a panel would not be seen; statements and replayed steps are for developers."""
    shown = set(re.findall(r"\w+", " ".join(_dashboard())))
    shown |= {re.sub("_(bucket|sum|count)$", "", name) for name in shown}
    left_out = {each.name for each in FIGURES if metric_name(each) not in shown}
    assert left_out == {"lash.statements", "lash.steps.replayed", "lash.processes", "lash.process.duration"}


def test_the_documentation_lists_every_metric() -> None:
    """The how-to has a row for each, with both names."""
    page = (_DEPLOY.parent / "docs" / "howto" / "telemetry.md").read_text()
    for each in FIGURES:
        assert f"| `{metric_name(each)}` | `{each.name}` |" in page
