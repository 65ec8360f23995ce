"""Traces and figures for OpenTelemetry; needs the extra ``otel``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from lash import __version__
from lash.errors import ConfigError
from lash.runtime.hooks import PROCESS, STEP, TURN, Attributes, Hook

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider
except ModuleNotFoundError as missing:
    raise ConfigError("OpenTelemetry is not installed: pip install 'lash-runtime[otel]'") from missing

_PREFIX: Final = "lash."
_RETRIED: Final = {"turn.retried": TURN, "process.retried": PROCESS}


class OpenTelemetryHook(Hook):
    """Spans for turns, runs of processes and steps, and counters, for ``App(url, hooks=[OpenTelemetryHook()])``.

    A turn or a process's run is the root of a trace of its own, linked with the span in which its worker was started,
    if there was one: work is taken from a queue, and its worker outlives the caller that queued it. Steps are its
    children, in whichever task or thread they run, and spans started inside a step are the step's children. Attributes
    have the names of `lash.Hook`, prefixed with ``lash.``. An error that ended an attempt is recorded with its
    traceback; a cancellation is not an error. Single events, such as a replayed step, are events of the current span.

    The counters are ``lash.steps.replayed``; ``lash.retries``, by ``lash.kind``; ``lash.dead_letters``; and
    ``lash.statements``, by ``lash.statement``. Without providers the global ones are used.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._tracer = trace.get_tracer("lash", __version__, tracer_provider)
        meter = metrics.get_meter("lash", __version__, meter_provider)
        self._replayed = meter.create_counter("lash.steps.replayed", "{step}", "steps answered from their record")
        self._retries = meter.create_counter("lash.retries", "{attempt}", "attempts after which another one followed")
        self._dead_letters = meter.create_counter("lash.dead_letters", "{turn}", "turns that failed permanently")
        self._statements = meter.create_counter("lash.statements", "{statement}", "statements sent to the database")

    @contextlib.contextmanager
    def span(self, kind: str, attributes: Attributes) -> Iterator[None]:
        if kind == STEP and attributes.get("attempt", 1) != 1:
            self._retries.add(1, {"lash.kind": STEP})
        is_root = kind != STEP
        around = trace.get_current_span().get_span_context()
        with self._tracer.start_as_current_span(
            _title(kind, attributes),
            context=Context() if is_root else None,
            kind=SpanKind.CONSUMER if is_root else SpanKind.INTERNAL,
            attributes=_named(attributes),
            links=[Link(around)] if is_root and around.is_valid else None,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Exception as error:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, f"{type(error).__qualname__}: {error}"))
                raise
            except BaseException:
                span.set_attribute("lash.cancelled", True)
                raise

    def note(self, kind: str, attributes: Attributes) -> None:
        trace.get_current_span().add_event(_PREFIX + kind, _named(attributes))
        if kind == "step.replayed":
            self._replayed.add(1)
        elif kind in _RETRIED:
            self._retries.add(1, {"lash.kind": _RETRIED[kind]})
        elif kind == "turn.buried":
            self._dead_letters.add(1)

    def statement(self, name: str) -> None:
        self._statements.add(1, {"lash.statement": name})


def _title(kind: str, attributes: Attributes) -> str:
    """Return the name of a span: of few different values, as their conventions ask."""
    name = attributes.get("name") or attributes.get("process")
    return f"{kind} {name}" if name else kind


def _named(attributes: Attributes) -> dict[str, str | int | float | bool]:
    return {_PREFIX + name: value for name, value in attributes.items()}
