"""Writes ``docs/benchmarks.md`` from a file of results: ``python -m benchmarks.page [RESULTS]``.

With ``--add`` the scenarios of the file replace those of the same name on the page, or are added to it: for a run of
some scenarios on the same machine. The result is copied to ``benchmarks/results/published.json``, so that the page can
be written again; plots go to ``docs/assets/benchmarks/``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.kit.plot import plot

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "benchmarks" / "results" / "published.json"
REMARKS = ROOT / "benchmarks" / "remarks.md"
"""Notes by scenario, under headings: where the time goes if a target is missed."""
_GROUPS = {
    "bare driver": "Against the driver alone, and against C",
    "the seeds' way": "Against the seeds' way of committing",
    "peers": "Against peers",
    "adapters": "Adapters against the frameworks' own storage",
    "flatness": "Flatness",
    "lists": "Lists",
    "console": "The console",
    "latency": "Latency across processes",
    "fleet": "Fleets of workers",
    "footprint": "Footprint",
}
_INTRODUCTION = """\
# Benchmarks

What lash costs, as ratios measured in one run on one machine. `make bench` measures everything again, `make bench
SCENARIO=chat` one scenario, and `make peers` installs the libraries that lash is compared with. `python -m
benchmarks.page` writes this page from the results of such a run.

Every figure is the median of {rounds} rounds, with the spread between the extremes beside it. Within a round all
contenders run in turn. After each round the written data is read back and compared; a contender that fails has no
figure. Texts are seeded prose of pseudo-words, which zlib compresses by a factor of about 2.5. Every side waits for
the disk (SQLite: `synchronous=FULL`; PostgreSQL: `fsync` and `synchronous_commit` on). The bare driver, C and pgbench
run the statements that lash runs, recorded and replayed on a copy of the same database, without lash's checks. Peers
run in separate environments and are called the way their users call them.

**Absolute figures hold for this machine only; compare the ratios.** "More" means that a higher ratio is better for
lash, "less" that a lower one is.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write docs/benchmarks.md from results.")
    parser.add_argument("results", nargs="?", type=Path, default=PUBLISHED)
    parser.add_argument("--add", action="store_true", help="keep the other scenarios that are published")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="the documentation directory")
    options = parser.parse_args()
    document = json.loads(options.results.read_text())
    if options.add:
        document = added(json.loads(PUBLISHED.read_text()), document["results"])
    plots = options.docs / "assets" / "benchmarks"
    plots.mkdir(parents=True, exist_ok=True)
    (options.docs / "benchmarks.md").write_text("\n".join(page(document, plots)) + "\n")
    if options.results.resolve() != PUBLISHED and options.docs == ROOT / "docs":
        PUBLISHED.write_text(json.dumps(document, indent=1))


def added(published: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the published document with these results, each in the place of the older one."""
    newer = {each["scenario"]: each for each in results}
    kept = [newer.pop(each["scenario"], each) for each in published["results"]]
    return published | {"results": [*kept, *newer.values()]}


def page(document: dict[str, Any], plots: Path) -> Iterable[str]:
    """Return the lines of the page, and write its plots."""
    yield _INTRODUCTION.format(rounds=document["rounds"])
    yield "## Machine"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for name, value in document["machine"].items():
        yield f"| {name.replace('_', ' ')} | {value} |"
    yield ""
    if document["scale"] < 1 or document["rounds"] < 5:
        yield "!!! warning"
        yield "    These results come from a shortened run. They show only that the programs work."
        yield ""
    if not document["results"]:
        yield "No results yet: run `make bench`, then `python -m benchmarks.page` with its results file."
        return
    known = remarks(REMARKS.read_text())
    yield from _overview(document["results"])
    for group, title in _GROUPS.items():
        results = [each for each in document["results"] if each["group"] == group]
        if results:
            yield f"## {title}"
            yield ""
            for result in results:
                yield from _scenario(result, plots, known.get(result["scenario"], ""))


def _overview(results: list[dict[str, Any]]) -> Iterable[str]:
    yield "## Overview"
    yield ""
    yield "| scenario | ours | other | unit | ratio | better | target |"
    yield "|---|---:|---:|---|---:|---|---|"
    for each in results:
        yield (
            f"| [{each['scenario']}](#{each['scenario']}) | {each['ours']:,} | {each['other']:,} | {each['unit']} "
            f"| **{each['ratio']}** | {each['better']} | {each['target']} |"
        )
    yield ""


def remarks(text: str) -> dict[str, str]:
    """Return the text below each second-level heading."""
    parts = (part.partition("\n") for part in text.split("\n## ")[1:])
    return {name.strip(): rest.strip() for name, _, rest in parts}


def _scenario(result: dict[str, Any], plots: Path, remark: str) -> Iterable[str]:
    name = result["scenario"]
    yield f"### {name}"
    yield ""
    yield f"{result['what'][:1].upper()}{result['what'][1:]}. The ratio is {result['compared']}."
    yield ""
    (plots / f"{name}.svg").write_text(plot(result))
    yield f"![{name}](assets/benchmarks/{name}.svg)"
    yield ""
    yield "| contender | case | median | unit | apart |"
    yield "|---|---|---:|---|---:|"
    for row in result["rows"]:
        yield (
            f"| {row['contender']} | {row['case']} | {row['median']:,} | {row['unit']} | {row['spread'] * 100:.0f} % |"
        )
    yield ""
    for ratio in result["ratios"][1:]:
        yield f"- {ratio['ratio']} = {ratio['case']}"
    for note in result["notes"]:
        yield f"- {note}"
    if remark:
        yield f"- {remark}"
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    measured = f"; measured on {result['date']}" if "date" in result else ""
    yield f"- {versions}; {result['seconds']:.0f} s{measured}"
    yield ""


if __name__ == "__main__":
    main()
