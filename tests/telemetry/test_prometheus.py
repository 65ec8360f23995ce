"""The metrics in the text format, read by Prometheus's own parser."""

from __future__ import annotations

import math

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import lash
from lash.telemetry import PrometheusHook
from lash.telemetry.figures import FIGURES
from lash.telemetry.prometheus import metric_name
from tests.runtime.worker_kit import until


def read(hook: PrometheusHook) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(hook.text())}


def values(family: Metric, name: str = "") -> dict[tuple[str, ...], float]:
    """Return the samples of a family by the values of their labels."""
    samples = (each for each in family.samples if each.name == (name or family.name))
    return {tuple(value for _, value in sorted(each.labels.items())): each.value for each in samples}


async def test_turns_steps_and_statements_are_figures() -> None:
    """Durations are histograms by agent, events are counters; both by the values that a test knows."""
    hook = PrometheusHook()
    async with lash.App("sqlite://", worker=False, hooks=[hook]) as app:

        @app.agent(retry=lash.Retry(max_attempts=1))
        async def echo(turn: lash.Turn) -> str:
            turn.usage("m-1", input_tokens=100, output_tokens=7)
            await turn.step("upper", turn.text.upper)
            if turn.text == "fail":
                raise lash.Permanent("no")
            return turn.text

        for text in ("one", "two", "fail"):
            await app.session(text).send(text)
        await app.drain()
    found = read(hook)
    count = "lash_turn_duration_seconds_count"
    assert values(found["lash_turn_duration_seconds"], count) == {("echo", "committed"): 2, ("echo", "buried"): 1}
    buckets = values(found["lash_turn_duration_seconds"], "lash_turn_duration_seconds_bucket")
    assert buckets["echo", "+Inf", "committed"] == 2
    assert values(found["lash_step_duration_seconds"], "lash_step_duration_seconds_count") == {("step",): 3}
    assert values(found["lash_queue_wait_seconds"], "lash_queue_wait_seconds_count") == {("echo",): 3}
    assert values(found["lash_commit_duration_seconds"], "lash_commit_duration_seconds_count") == {(): 2}
    assert values(found["lash_turns_buried"], "lash_turns_buried_total") == {("echo",): 1}
    sums = values(found["gen_ai_client_token_usage"], "gen_ai_client_token_usage_sum")
    assert sums == {("m-1", "input"): 200, ("m-1", "output"): 14}
    assert values(found["lash_statements"], "lash_statements_total")["queue_insert",] == 3


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_measures_itself_and_the_storage(backend_url: str) -> None:
    """The only worker is the duty worker: it has the figures of the storage and its own."""
    hook = PrometheusHook()
    async with lash.App(backend_url, worker=False) as sender:
        await sender.storage.sessions.create("s")
        await sender.session("s", None).send("hi")
        options = lash.WorkerOptions(agents=("nothing",), sessions=3, processes=2)
        worker = lash.App(backend_url, options=options, hooks=[hook])

        @worker.agent
        async def nothing(turn: lash.Turn) -> None: ...

        async with worker:

            async def has_measured() -> bool:
                return {"lash_storage_bytes", "lash_slots_free"} <= read(hook).keys()

            await until(has_measured)
    found = read(hook)
    assert values(found["lash_queue_depth"]) == {("queued",): 1, ("claimed",): 0}
    assert values(found["lash_queue_oldest_age_seconds"])[()] >= 0
    assert values(found["lash_dead_letters"]) == {(): 0}
    assert values(found["lash_slots_free"]) == {("sessions",): 3, ("processes",): 2}
    assert values(found["lash_slots_used"]) == {("sessions",): 0, ("processes",): 0}
    assert values(found["lash_storage_bytes"])[()] > 10_000
    assert values(found["lash_processes"])["running",] == 0


def test_a_gauge_that_another_worker_measures_now_is_left_out() -> None:
    """A value older than a minute is of a time when this was the duty worker."""
    now = 0.0
    hook = PrometheusHook(clock=lambda: now)
    hook.measure("waits.open", 4, {})
    now = 60.0
    assert values(read(hook)["lash_waits_open"]) == {(): 4}
    now = 60.1
    assert read(hook) == {}


def test_labels_may_have_any_text() -> None:
    """Quotes, backslashes and line breaks in a label are escaped, and figures of later versions are left out."""
    hook, name = PrometheusHook(), 'a "b" \\ c\nd'
    hook.note("turn.ended", {"agent": name, "outcome": "committed", "took_s": math.pi})
    hook.measure("a.new.figure", 1, {})
    (family,) = read(hook).values()
    assert values(family, "lash_turn_duration_seconds_sum") == {(name, "committed"): math.pi}
    bounds = values(family, "lash_turn_duration_seconds_bucket")
    assert [count for (_, bound, _), count in bounds.items() if bound in {"2.5", "5", "+Inf"}] == [0, 1, 1]


def test_every_figure_has_a_name_of_its_own() -> None:
    """Names of Prometheus and of OpenTelemetry are unique."""
    assert len({metric_name(each) for each in FIGURES}) == len({each.name for each in FIGURES}) == len(FIGURES)
