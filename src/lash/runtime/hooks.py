"""Hooks for logging, metrics and tracing."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType, TracebackType
from typing import Final, TypeAlias

from lash.base.limits import check_identifier
from lash.errors import ConfigError
from lash.model.effect import ExecutionScope, ProcessScope, TurnScope

Attributes: TypeAlias = Mapping[str, str | int | float | bool]

TURN: Final = "turn"
PROCESS: Final = "process"
STEP: Final = "step"

_log: Final = logging.getLogger("lash")


class Hook:
    """The base class of hooks: every method does nothing. Override the ones that you need, and pass it to the App.

    A hook observes; it never decides. An error that it raises is logged, the first one of each method with its
    traceback, and does not affect the turn, process or step; neither does a manager that swallows an error. Hooks run
    where the work runs, so they must not block. A method that is not overridden costs nothing.

    A hook that counts and measures::

        class Figures(lash.Hook):
            def __init__(self) -> None:
                self.seconds = defaultdict(list)
                self.moments = Counter()

            @contextmanager
            def span(self, kind, attributes):
                began = time.monotonic()
                try:
                    yield
                finally:
                    self.seconds[kind].append(time.monotonic() - began)

            def note(self, kind, attributes):
                self.moments[kind] += 1

        app = lash.App(url, hooks=[Figures()])
    """

    content = False
    """Whether the hook gets texts: the span of a turn then has ``input``, its messages, and ``turn.committed`` has
    ``output``, its reply, both as JSON of ``[{"role": ..., "parts": [{"type": "text", "content": ...}]}]``."""

    def span(self, kind: str, attributes: Attributes) -> AbstractContextManager[None]:  # noqa: ARG002 (a base)
        """Surround one attempt of a ``turn``, a ``step``, or one run of a ``process``.

        An error that ends it reaches the manager's ``__exit__``, even if another attempt follows. A run that is parked,
        released or cancelled has not failed. The manager is entered and left in one task, which does the work or
        starts its tasks: context variables reach all of it.

        A turn has ``agent``, ``session_id``, ``turn_id``, ``attempt``, and ``waited_s``, the seconds between its
        message's arrival, or the time it was delayed to, and its claim; a process has ``process_id`` and ``process``;
        a step has ``step`` (its key), ``name``, ``attempt``, and the ids of what it belongs to. A call of a tool also
        has ``tool`` and ``call_id``, a call of a model ``provider`` and ``model``, each if it is known. A turn or
        process whose sender was traced has ``traceparent``.
        """
        return contextlib.nullcontext()

    def note(self, kind: str, attributes: Attributes) -> None:
        """Called for a single event.

        The kinds are ``step.replayed``, ``run.resumed`` (a traced attempt before this one has recorded steps),
        ``turn.retried``, ``turn.buried`` (it is a dead letter now), ``turn.parked``, ``turn.committed``, ``turn.ended``
        (it is committed or a dead letter), ``process.retried``, ``process.failed`` (it has ended), ``process.parked``,
        ``process.continued`` (its next run begins), ``process.ended`` (the process, or one of its runs),
        ``lease.lost``, ``lease.reclaimed``, ``definition.unknown``, ``command.unknown`` (sent to a session by a newer
        version), ``activity.lost``, ``loop.blocked``, ``storage.away`` (runs wait for the database), ``storage.back``,
        ``worker.trouble`` (the worker continues), ``worker.failed`` (it does not), ``worker.draining`` (it takes
        nothing new, and stops when nothing runs), ``worker.withdrawn`` (it takes no turns for ``seconds``, because the
        workers of its machine slow each other down), ``worker.stopping`` (it waits for sessions and processes, up to
        the grace time) and ``worker.outdated`` (it stops, because the storage was migrated past its version). More
        kinds may be added.

        ``turn.retried``, ``turn.buried``, ``process.retried`` and ``process.failed`` have the name of the agent or the
        process, its ids, ``attempt``, ``max_attempts``, ``counts`` (False for an attempt that is not counted),
        ``error`` and ``traceback``, without frames of lash; the two retries have ``next_s``, the pause in seconds.

        ``turn.ended`` and ``process.ended`` have the name of the agent or the process, its ids, ``outcome``, ``took_s``
        and ``steps``. A turn took the time of its last run, a process the time since its start. ``turn.committed`` has
        ``took_s``, the seconds of the commit, and for a turn with usage ``input_tokens``, ``output_tokens``,
        ``cached_input_tokens``, ``reasoning_tokens``, and ``model`` if it is only one. ``run.resumed`` has the ids and
        ``traceparent``, the span of the last attempt that recorded a step.
        """

    def measure(self, name: str, value: float, attributes: Attributes) -> None:
        """Called for a figure that has a value at each moment; the last one counts.

        A worker measures itself four times a second: ``loop.lag`` in seconds, ``slots.used`` and ``slots.free`` by
        ``kind``. The duty worker measures the storage every 15 seconds: ``queue.depth`` by ``state``,
        ``queue.oldest_age`` in seconds, ``dead_letters``, ``processes`` by ``status``, ``waits.open``, ``workers.live``
        and ``storage.bytes``.
        """

    def traceparent(self) -> str | None:
        """Return the W3C trace context of the code that sends a message or starts a process now; it is stored with it.

        The span of the turn or of the process gets it back as ``traceparent``, on whichever machine it runs. It is also
        called in the span of each attempt, and stored with the steps of the attempt: the next attempt gets it back as
        ``traceparent`` of ``run.resumed``.
        """
        return None

    def statement(self, name: str) -> None:
        """Called before a statement is sent to the database; on SQLite also from other threads than the loop's."""


class LoggingHook(Hook):
    """Writes events that need attention to the logger ``lash`` as warnings, the others at debug level.

    Failed attempts are logged with the traceback of the application, the last one of a turn or process as an error.
    The end of an outage is logged at info level, and so is the end of each turn and each process.
    """

    _FAILED: Final = {
        "turn.retried": logging.WARNING,
        "turn.buried": logging.ERROR,
        "process.retried": logging.WARNING,
        "process.failed": logging.ERROR,
    }
    _LOUD: Final = frozenset(
        {
            "lease.lost",
            "loop.blocked",
            "definition.unknown",
            "command.unknown",
            "activity.lost",
            "storage.away",
            "worker.trouble",
            "worker.failed",
            "worker.outdated",
            "worker.stopping",
        }
    )

    _TOLD: Final = frozenset({"storage.back", "turn.ended", "process.ended"})

    def note(self, kind: str, attributes: Attributes) -> None:
        if kind in self._FAILED and "traceback" in attributes:
            _log.log(self._FAILED[kind], "%s %s\n%s", kind, _failure_line(attributes), attributes["traceback"])
            return
        level = logging.WARNING if kind in self._LOUD else logging.INFO if kind in self._TOLD else logging.DEBUG
        if _log.isEnabledFor(level):
            _log.log(level, "%s %s", kind, " ".join(f"{name}={value!r}" for name, value in attributes.items()))


class Hooks:
    """All hooks of an application as one. Errors of a hook do not leave it."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        for hook in hooks:
            if not isinstance(hook, Hook):
                raise ConfigError(f"expected an instance of a subclass of lash.Hook, got {hook!r:.80}")
        self._all = tuple(hooks)
        self._spanning = _overriding(hooks, "span", Hook.span)
        self._noting = _overriding(hooks, "note", Hook.note)
        self._stating = _overriding(hooks, "statement", Hook.statement)
        self._measuring = _overriding(hooks, "measure", Hook.measure)
        self._tracing = _overriding(hooks, "traceparent", Hook.traceparent)
        self.content = any(hook.content for hook in hooks)
        """Whether a hook gets the texts of messages."""
        self._blamed: set[tuple[int, str]] = set()

    def and_also(self, hooks: Sequence[Hook]) -> Hooks:
        """Return these hooks and further ones."""
        return Hooks((*self._all, *hooks)) if hooks else self

    @property
    def on_statement(self) -> Callable[[str], None] | None:
        """The callback of a storage for each statement; None if no hook overrides it."""
        return self.statement if self._stating else None

    @property
    def measures(self) -> bool:
        """Whether a hook takes measured figures; without one, nothing is measured."""
        return bool(self._measuring)

    @property
    def spans(self) -> bool:
        """Whether a hook surrounds work; without one, its attributes need not be collected."""
        return bool(self._spanning)

    def measure(self, name: str, value: float, **attributes: str | float | bool) -> None:
        for hook in self._measuring:
            try:
                hook.measure(name, value, attributes)
            except Exception:  # noqa: BLE001 (a hook never breaks what it watches)
                self.blame(hook, "measure")

    def traceparent(self) -> str | None:
        """Return the trace context of the running code, from the first hook that has one."""
        for hook in self._tracing:
            try:
                found = hook.traceparent()
                if found is not None:
                    # It is stored: one that cannot be must not fail a message or a step.
                    check_identifier("traceparent", found)
            except Exception:  # noqa: BLE001 (a hook never breaks what it watches)
                self.blame(hook, "traceparent")
            else:
                if found is not None:
                    return found
        return None

    def span(self, kind: str, **attributes: str | float | bool) -> AbstractContextManager[None]:
        """Surround a piece of work with the managers of all hooks."""
        return _Span(self, kind, attributes) if self._spanning else _NOTHING

    def failed(self, error: BaseException) -> None:
        """Let the innermost span end with an error that was handled inside it."""
        span = _current_span.get()
        if span is not None:
            span.error = error

    def note(self, kind: str, **attributes: str | float | bool) -> None:
        for hook in self._noting:
            try:
                hook.note(kind, attributes)
            except Exception:  # noqa: BLE001 (a hook never breaks what it watches)
                self.blame(hook, "note")

    def statement(self, name: str) -> None:
        for hook in self._stating:
            try:
                hook.statement(name)
            except Exception:  # noqa: BLE001 (a hook never breaks what it watches)
                self.blame(hook, "statement")

    def step(self, scope: ExecutionScope, key: str, attempt: int) -> AbstractContextManager[None]:
        if not self._spanning:
            return _NOTHING
        about = _about_steps.get()
        return self.span(STEP, step=key, name=_step_name(key), attempt=attempt, **scope_attributes(scope), **about)

    def step_replayed(self, scope: ExecutionScope, key: str) -> None:
        self.note("step.replayed", step=key, name=_step_name(key), **scope_attributes(scope))

    def enter(self, kind: str, attributes: Attributes) -> list[tuple[Hook, AbstractContextManager[None]]]:
        """Enter the managers of all hooks, and return the entered ones."""
        entered: list[tuple[Hook, AbstractContextManager[None]]] = []
        for hook in self._spanning:
            try:
                manager = hook.span(kind, attributes)
                manager.__enter__()
            except Exception:  # noqa: BLE001 (a hook never breaks what it watches)
                self.blame(hook, "span")
            else:
                entered.append((hook, manager))
        return entered

    def leave(self, hook: Hook, manager: AbstractContextManager[None], error: BaseException | None) -> None:
        """Exit one manager. If it re-raises the error that it is given, the hook is not at fault."""
        try:
            if error is None:
                manager.__exit__(None, None, None)
            else:
                manager.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:
            if raised is error:
                return
            if not isinstance(raised, Exception):
                raise
            self.blame(hook, "span")

    def blame(self, hook: Hook, method: str) -> None:
        """Log the error that a hook has just raised: the first one as an error, later ones at debug level."""
        first = (id(hook), method) not in self._blamed
        self._blamed.add((id(hook), method))
        level = logging.ERROR if first else logging.DEBUG
        _log.log(level, "%s.%s failed; the run that it watches goes on", type(hook).__qualname__, method, exc_info=True)


class _Span:
    """One piece of work with the managers of all hooks around it."""

    __slots__ = ("_attributes", "_entered", "_hooks", "_kind", "_token", "error")

    def __init__(self, hooks: Hooks, kind: str, attributes: Attributes) -> None:
        self._hooks = hooks
        self._kind = kind
        self._attributes = attributes
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        self._entered = self._hooks.enter(self._kind, self._attributes)
        self._token = _current_span.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current_span.reset(self._token)
        for hook, manager in reversed(self._entered):
            self._hooks.leave(hook, manager, error if error is not None else self.error)


_current_span: Final[contextvars.ContextVar[_Span | None]] = contextvars.ContextVar("lash_span", default=None)
_NOTHING: Final[AbstractContextManager[None]] = contextlib.nullcontext()
_NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})
_about_steps: Final = contextvars.ContextVar("lash_about_steps", default=_NO_ATTRIBUTES)


@contextlib.contextmanager
def about_steps(**attributes: str | None) -> Iterator[None]:
    """Add attributes to the spans of the steps inside, such as the tool that a step calls; None is left out."""
    token = _about_steps.set({name: value for name, value in attributes.items() if value is not None})
    try:
        yield
    finally:
        _about_steps.reset(token)


def scope_attributes(scope: ExecutionScope) -> dict[str, str]:
    """Return the ids that a scope names."""
    match scope:
        case TurnScope():
            return {"session_id": scope.session_id, "turn_id": scope.turn_id}
        case ProcessScope():
            return {"process_id": scope.process_id}
    return {}


def _failure_line(attributes: Attributes) -> str:
    """Return the name, the id, the number of a failed attempt, and when the next one follows."""
    names = [f"{kind} {attributes[kind]!r}" for kind in ("agent", "process") if kind in attributes]
    ids = [f"{kind}={attributes[kind]!r}" for kind in ("session_id", "turn_id", "process_id") if kind in attributes]
    which = f"attempt {attributes['attempt']} of {attributes['max_attempts']}"
    if not attributes["counts"]:
        which = "an attempt that does not count"
    then = f"; next attempt in {attributes['next_s']:g} s" if "next_s" in attributes else "; no further attempt"
    return f"{' '.join(names)} ({', '.join(ids)}): {which} failed{then}: {attributes['error']}"


def _overriding(hooks: Sequence[Hook], method: str, base: Callable[..., object]) -> tuple[Hook, ...]:
    """Return the hooks that have a method of their own."""
    return tuple(hook for hook in hooks if getattr(getattr(hook, method), "__func__", None) is not base)


def _step_name(key: str) -> str:
    """Return a step's name without its line and its number, so that equal steps have equal names."""
    return key.rpartition("/")[2].partition("#")[0]
