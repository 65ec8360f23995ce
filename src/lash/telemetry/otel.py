"""Traces and metrics for OpenTelemetry by its conventions for generative AI; needs the extra ``otel``."""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from lash import __version__
from lash.errors import ConfigError
from lash.runtime.hooks import STEP, Attributes, Hook
from lash.telemetry.figures import FIGURES, Figure, FigureHook, FigureKind, Labels
from lash.telemetry.spans import PREFIX, SpanText, committed, named, run_span, step_span

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as missing:
    raise ConfigError("OpenTelemetry is not installed: pip install 'lash-runtime[otel]'") from missing

_CONTEXT: Final = TraceContextTextMapPropagator()
_INSTRUMENTOR: Final = "opentelemetry.instrumentation.instrumentor"
_MOST_REMEMBERED: Final = 1_024
"""How many turns and processes a hook remembers the last span of."""


class OpenTelemetryHook(Hook):
    """Spans and metrics for ``App(url, hooks=[OpenTelemetryHook()])``.

    A turn is a span ``invoke_agent AGENT``, a run of a process ``invoke_workflow NAME``, the call of a tool
    ``execute_tool TOOL``, the call of a model ``chat MODEL``, and any other step ``step NAME``. Steps are children of
    their turn or process, in whichever task or thread they run. A turn belongs to the trace of the code that sent its
    message, and a process to that of the code that started it, on whichever machines they run; without such a trace
    each starts its own. A later attempt is linked with the one before it, on whichever machine that ran, if it recorded
    a step or this program ran it.

    ``chat`` spans are left to the instrumentation of a provider's client if one is active; ``model_spans`` decides it
    instead. The texts of messages and replies are recorded only with ``capture_content``. Attributes of `lash.Hook`
    have the prefix ``lash.``. An error that ended an attempt is recorded with its traceback; a cancellation is not an
    error. Single events, such as a replayed step, are events of the current span.

    The metrics are those of `lash.telemetry.figures`. Without providers the global ones are used.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        model_spans: bool | None = None,
        capture_content: bool = False,
    ) -> None:
        self.content = capture_content
        self._tracer = trace.get_tracer("lash", __version__, tracer_provider)
        self._figures = FigureHook(_Meter(metrics.get_meter("lash", __version__, meter_provider)))
        self._model_spans = model_spans
        self._last_spans: OrderedDict[str, _RunSpan] = OrderedDict()

    @contextlib.contextmanager
    def span(self, kind: str, attributes: Attributes) -> Iterator[None]:
        with self._figures.timing(kind, attributes), self._started(kind, attributes) as span:
            try:
                yield
            except Exception as error:
                span.record_exception(error)
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, f"{type(error).__qualname__}: {error}"))
                raise
            except BaseException:
                span.set_attribute("lash.cancelled", True)
                raise

    def note(self, kind: str, attributes: Attributes) -> None:
        span = trace.get_current_span()
        if kind == "turn.committed":
            span.set_attributes(committed(attributes))
        elif kind == "run.resumed":
            self._link(span, attributes)
        else:
            span.add_event(PREFIX + kind, named(attributes))
        self._figures.note(kind, attributes)

    def measure(self, name: str, value: float, attributes: Attributes) -> None:
        self._figures.measure(name, value, attributes)

    def statement(self, name: str) -> None:
        self._figures.statement(name)

    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        _CONTEXT.inject(carrier)
        return carrier.get("traceparent")

    def _started(self, kind: str, attributes: Attributes) -> contextlib.AbstractContextManager[Span]:
        if kind == STEP:
            with_model = self._model_spans
            if with_model is None:
                with_model = not _is_instrumented(str(attributes.get("provider", "")))
            return self._start(step_span(attributes, with_model=with_model), None, ())
        return self._start_run(run_span(kind, attributes), attributes)

    @contextlib.contextmanager
    def _start_run(self, text: SpanText, attributes: Attributes) -> Iterator[Span]:
        """Start the span of a turn or process: in the trace of its sender, linked with its last attempt here."""
        run_id = _run_id(attributes)
        last = self._last_spans.pop(run_id, None)
        links = () if last is None else (Link(last.span),)
        # Not the span around it: that is of the code which started the worker.
        with self._start(text, _context(attributes), links) as span:
            self._last_spans[run_id] = _RunSpan(span.get_span_context(), None if last is None else last.span)
            if len(self._last_spans) > _MOST_REMEMBERED:
                self._last_spans.popitem(last=False)
            yield span

    def _link(self, span: Span, attributes: Attributes) -> None:
        """Link the span of an attempt with the last one that recorded a step, unless it already is."""
        before = trace.get_current_span(_context(attributes)).get_span_context()
        known = self._last_spans.get(_run_id(attributes))
        if before.is_valid and (known is None or known.linked is None or known.linked.span_id != before.span_id):
            span.add_link(before)

    def _start(
        self, text: SpanText, context: Context | None, links: tuple[Link, ...]
    ) -> contextlib.AbstractContextManager[Span]:
        return self._tracer.start_as_current_span(
            text.name,
            context=context,
            kind=SpanKind.CLIENT if text.is_call else SpanKind.INTERNAL,
            attributes=text.attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        )


class _RunSpan(NamedTuple):
    """The span of an attempt, and the one that it was linked with when it started."""

    span: SpanContext
    linked: SpanContext | None


class _Meter:
    """Figures as instruments of OpenTelemetry."""

    def __init__(self, meter: Meter) -> None:
        of_kind = {kind: [each for each in FIGURES if each.kind is kind] for kind in FigureKind}
        self._counters: dict[str, Counter] = {
            each.name: meter.create_counter(each.name, each.unit, each.description)
            for each in of_kind[FigureKind.COUNTER]
        }
        self._histograms: dict[str, Histogram] = {
            each.name: meter.create_histogram(
                each.name, each.unit, each.description, explicit_bucket_boundaries_advisory=each.bounds
            )
            for each in of_kind[FigureKind.HISTOGRAM]
        }
        self._gauges = {
            each.name: meter.create_gauge(each.name, each.unit, each.description) for each in of_kind[FigureKind.GAUGE]
        }

    def add(self, figure: Figure, labels: Labels) -> None:
        self._counters[figure.name].add(1, _prefixed(labels))

    def observe(self, figure: Figure, value: float, labels: Labels) -> None:
        self._histograms[figure.name].record(value, _prefixed(labels))

    def set(self, figure: Figure, value: float, labels: Labels) -> None:
        self._gauges[figure.name].set(value, _prefixed(labels))


def _run_id(attributes: Attributes) -> str:
    return str(attributes.get("turn_id", "")) or str(attributes["process_id"])


def _context(attributes: Attributes) -> Context:
    """Return the trace context that attributes carry, empty if they carry none."""
    return _CONTEXT.extract({"traceparent": str(attributes.get("traceparent", ""))}, Context())


def _prefixed(labels: Labels) -> dict[str, str]:
    """Return labels as attributes; those of a convention keep their names."""
    return {name if "." in name else PREFIX + name: value for name, value in labels.items()}


def _is_instrumented(provider: str) -> bool:
    """Return whether an instrumentation of this provider's client is active, which makes the spans of its calls."""
    module = sys.modules.get(_INSTRUMENTOR)
    if module is None or not provider:
        return False
    of_provider = (each for each in module.BaseInstrumentor.__subclasses__() if provider in each.__module__)
    # Each class has one object, once it was used.
    made = (each._instance for each in of_provider)  # noqa: SLF001 (making one would be a side effect)
    return any(each is not None and each.is_instrumented_by_opentelemetry for each in made)
