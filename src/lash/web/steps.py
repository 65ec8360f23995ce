"""Recorded steps and open waits as bars of a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lash.cli.effect import status_of
from lash.cli.wait import identity_text
from lash.model.effect import EffectRecord
from lash.model.wait import WaitRecord
from lash.web.show import now_ms
from lash.web.timeline import TimelineBar, lost_attempts, step_tone

_SECOND_MS = 1_000


def this_second_ms() -> int:
    """Return the time to the second: a drawing of what still runs changes once a second at most."""
    return now_ms() // _SECOND_MS * _SECOND_MS


def tone_of(status: str) -> str:
    """Return the tone of a status."""
    if status in ("failed", "abandoned", "unknown"):
        return "bad"
    return "warn" if status in ("running", "cancelled") else "good"


def began_at_ms(effect: EffectRecord) -> int:
    """Return when a step began; earlier versions recorded only when it was written."""
    return effect.created_at_ms if effect.began_at_ms is None else effect.began_at_ms


def ended_at_ms(effect: EffectRecord) -> int:
    """Return when a step ended, or up to when it has run."""
    if status_of(effect) == "running":
        return max(began_at_ms(effect), min(effect.due_at_ms or this_second_ms(), this_second_ms()))
    # A sleep is recorded at its start, and ends when it is due.
    return max(began_at_ms(effect), effect.updated_at_ms, effect.due_at_ms or 0)


def effect_bar(effect: EffectRecord) -> TimelineBar:
    """Return a recorded step as a bar."""
    status = status_of(effect)
    ran = f"attempt {effect.attempt} on {effect.worker}" if effect.attempt is not None else ""
    tries = f"{effect.tries} tries" if (effect.tries or 1) > 1 else ""
    note = " · ".join(each for each in (status, ran, tries) if each)
    tone = step_tone(effect.kind, tone_of(status))
    return TimelineBar(effect.replay_key, began_at_ms(effect), ended_at_ms(effect), tone, note)


def effect_marks(effects: Iterable[EffectRecord], how: str) -> list[TimelineBar]:
    """Return a mark where a step of a higher attempt follows."""
    return lost_attempts(((each.attempt or 1, began_at_ms(each), ended_at_ms(each)) for each in effects), how)


def wait_bars(waits: Sequence[WaitRecord]) -> list[TimelineBar]:
    """Return open waits as bars up to now."""
    return [
        TimelineBar(identity_text(wait.identity), wait.created_at_ms, max(this_second_ms(), wait.created_at_ms), "warn")
        for wait in waits
    ]
