"""The turns of a session: the steps of the one that runs or is parked, and of the last committed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import htpy as h

from lash.cli.effect import status_of
from lash.cli.text import moment, plural
from lash.cli.turn import turns_of
from lash.model.effect import EffectRecord, TurnScope
from lash.model.lease import Lease
from lash.model.queue import QueuedBatch, QueuedState, turn_id_of
from lash.model.session.node import Node
from lash.model.session.trace import TurnRecord, TurnTrace
from lash.model.wait import WaitRecord
from lash.web.show import ago, badge, line
from lash.web.steps import effect_bar, effect_marks, this_second_ms, wait_bars
from lash.web.timeline import TimelineBar, duration, timeline, trace_bars
from lash.web.view import Visit

_TURNS: Final = 10
"""How many turns are drawn."""


def open_turn(session_id: str, queued: Sequence[QueuedBatch]) -> TurnScope | None:
    """Return the turn that runs, is parked, or failed and will be tried again, by the queue of its session."""
    for each in queued:
        if each.state in (QueuedState.CLAIMED, QueuedState.PARKED) or each.batch.attempts:
            return TurnScope(session_id=session_id, turn_id=turn_id_of(each.batch.batch_id))
    return None


def running_turn(
    visit: Visit, holder: Lease | None, effects: Sequence[EffectRecord], waits: Sequence[WaitRecord]
) -> h.Element:
    """Return the steps that a turn has recorded so far, before its commit; hidden if there is no such turn."""
    bars = [*map(effect_bar, effects), *effect_marks(effects, "ended"), *wait_bars(waits)]
    if holder is not None:
        ended, note = max(this_second_ms(), holder.claimed_at_ms), f"fencing number {holder.fencing}"
        bars.append(TimelineBar("this attempt", holder.claimed_at_ms, ended, "warn", note))
    if not bars:
        return h.section("#running", hidden=True)
    running = [each for each in effects if status_of(each) == "running"]
    return h.section("#running")[
        h.h2["The turn that is open"],
        h.p(".quiet")[plural(len(effects), "step"), f", {len(running)} of them running" if running else ""],
        _scrolled(visit, bars),
    ]


def past_turns(visit: Visit, nodes: Sequence[Node], turns: Mapping[str, TurnRecord]) -> h.Element:
    """Return the steps of the newest turns as bars, with marks where an attempt died."""
    shown = [turns[turn_id] for turn_id in turns_of(nodes) if turn_id in turns][-_TURNS:]
    drawn = [(turn, turn.trace) for turn in reversed(shown) if turn.trace is not None and turn.trace.steps]
    return h.section("#turns")[
        h.h2["Steps of the last turns"],
        [_turn(visit, turn, trace, is_open=index == 0) for index, (turn, trace) in enumerate(drawn)]
        or h.p(".empty")["No steps were recorded in these turns. An agent records one with turn.step()."],
    ]


def _turn(visit: Visit, turn: TurnRecord, trace: TurnTrace, *, is_open: bool) -> h.Element:
    took = duration(max(0, turn.committed_at_ms - trace.steps[0].began_at_ms))
    return h.details(".turn", open=is_open)[
        h.summary[
            f"revision {turn.revision:,}: ",
            plural(len(trace.steps) + trace.left_out, "step"),
            f" in {took}",
            *_attempts(trace),
            " · ",
            ago(turn.committed_at_ms),
        ],
        h.p(".quiet")[f"committed {moment(turn.committed_at_ms)}", trace.worker and f" by {line(trace.worker, 60)}"],
        _scrolled(visit, trace_bars(trace)),
        trace.left_out > 0 and h.p(".quiet")[f"{plural(trace.left_out, 'step')} in the middle were not kept."],
    ]


def _attempts(trace: TurnTrace) -> tuple[h.Node, ...]:
    lost = ((trace.failures, "failed attempt"), (trace.crashes, "crash"))
    return tuple((" ", badge("failed", plural(count, noun))) for count, noun in lost if count)


def _scrolled(visit: Visit, bars: Sequence[TimelineBar]) -> h.Element:
    return h.div(".scroll.card", tabindex="0", role="region", aria_label="Steps")[timeline(bars, visit.redact)]
