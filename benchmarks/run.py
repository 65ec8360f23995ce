"""Runs scenarios: ``python -m benchmarks.run [NAME …] [--rounds N] [--scale X] [--quick]``, as ``make bench`` does.

Without a name every scenario is run, each in a process of its own; a table and a file of results come out. With one
name the last line that is printed is a single JSON object.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.kit.machine import machine_facts
from benchmarks.kit.peer import PeerMissing, require
from benchmarks.kit.registry import Scenario, load_all
from benchmarks.kit.report import JSONValue, Report
from benchmarks.kit.workspace import file_system, workspace

RESULTS = Path(__file__).resolve().parent / "results"
_LIMIT_S = 900


def main() -> int:
    """Run what the command line names."""
    options = _options()
    scenarios = load_all()
    unknown = [name for name in options.names if name not in scenarios]
    if unknown:
        print(f"there is no scenario {unknown[0]!r}; there are:\n  " + "\n  ".join(scenarios), file=sys.stderr)
        return 2
    if len(options.names) == 1:
        return _run_here(scenarios[options.names[0]], options)
    names = options.names or [name for name, each in scenarios.items() if each.part_of is None]
    return _run_apart([scenarios[name] for name in names], options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure lash against others, as ratios within one run.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; all of them by default")
    parser.add_argument("--rounds", type=int, default=5, help="how often every figure is measured (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much to do in a round, 1 for a real measurement")
    parser.add_argument("--quick", action="store_true", help="two small rounds: does it work at all?")
    parser.add_argument("--directory", type=Path, default=Path(os.environ.get("LASH_BENCH_DIR", "/var/tmp")))
    parser.add_argument("--output", type=Path, help="where to write the results")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale = 2, 0.1
    return options


def _run_here(scenario: Scenario, options: argparse.Namespace) -> int:
    if file_system(options.directory) == "tmpfs":
        print(f"{options.directory} is in memory: no side waits for a disk. Set LASH_BENCH_DIR to a disk.")
    try:
        require(*scenario.peers)
    except PeerMissing as missing:
        print(f"{scenario.name}: {missing}", file=sys.stderr)
        return 3
    with workspace(options.directory, rounds=options.rounds, scale=options.scale) as here:
        report = scenario.run(here)
    if options.output is not None:
        options.output.write_text(json.dumps(report.as_json(scenario.name)))
    tell(scenario, report)
    return 0


def tell(scenario: Scenario, report: Report) -> None:
    """Print the figures, and as the last line one JSON object."""
    _print_report(scenario, report)
    print(json.dumps(report.headline(scenario.name)), flush=True)


def _run_apart(scenarios: list[Scenario], options: argparse.Namespace) -> int:
    results: list[JSONValue] = []
    failed: list[str] = []
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    RESULTS.mkdir(exist_ok=True)
    file = options.output or RESULTS / f"{stamp}.json"
    for scenario in scenarios:
        print(f"== {scenario.name}: {scenario.what}", flush=True)
        begin = time.monotonic()
        part = RESULTS / f"{stamp}.{scenario.name}.part"
        command = [sys.executable, "-m", "benchmarks.run", scenario.name, f"--output={part}"]
        command += [f"--rounds={options.rounds}", f"--scale={options.scale}", f"--directory={options.directory}"]
        try:
            code = subprocess.run(command, check=False, timeout=_LIMIT_S).returncode
        except subprocess.TimeoutExpired:
            code = -1
        if code == 0:
            results.append(_described(scenario, json.loads(part.read_text()), time.monotonic() - begin))
            part.unlink()
        else:
            failed.append(scenario.name)
        _save(file, options, results)
    _print_table(results)
    for name in failed:
        print(f"not measured: {name}")
    print(f"results: {file}")
    return 1 if failed else 0


def _described(scenario: Scenario, result: dict[str, JSONValue], seconds: float) -> dict[str, JSONValue]:
    about: dict[str, JSONValue] = {
        "group": scenario.group,
        "what": scenario.what,
        "better": scenario.better.value,
        "target": scenario.target,
        "seconds": round(seconds, 1),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    return result | about


def _save(file: Path, options: argparse.Namespace, results: list[JSONValue]) -> None:
    document = {"machine": machine_facts(options.directory), "rounds": options.rounds, "scale": options.scale}
    file.write_text(json.dumps(document | {"results": results}, indent=1))


def _print_report(scenario: Scenario, report: Report) -> None:
    print(f"{scenario.name} ({scenario.better.value} is better{'; target ' * bool(scenario.target)}{scenario.target})")
    width = max(len(f"{row.contender}, {row.case}") for row in report.rows)
    for row in report.rows:
        name = f"{row.contender}, {row.case}"
        print(f"  {name:<{width}}  {row.samples.median:>12,.4g} {row.unit}  ± {row.samples.spread:.0%} apart")
    for ratio in report.ratios:
        print(f"  {ratio.value:8.3f} = {ratio.case}")
    for note in report.notes:
        print(f"  {note}")


def _print_table(results: list[JSONValue]) -> None:
    print(f"{'scenario':<24}{'ours':>12}{'other':>12}  {'unit':<12}{'ratio':>8}  {'better':<8}target")
    for result in results:
        assert isinstance(result, dict)
        print(
            f"{result['scenario']:<24}{result['ours']:>12,}{result['other']:>12,}  {result['unit']:<12}"
            f"{result['ratio']:>8}  {result['better']:<8}{result['target']}"
        )


if __name__ == "__main__":
    sys.exit(main())
