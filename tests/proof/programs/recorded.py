"""What a crashed program has recorded, and how it has to end."""

from __future__ import annotations

from typing import Any

import lash
from lash.model.effect import EffectStatus, ProcessScope, Step
from lash.model.process.process import Failure, Success
from tests.proof.programs.case import PROCESS, Case


async def recorded_calls(storage: lash.Storage) -> set[str]:
    """Return the calls that no later run may repeat, by the names that they count."""
    effects = await storage.effects.list(ProcessScope(process_id=PROCESS))
    return {
        " ".join([command.name, *map(str, _arguments(command))])
        for effect in effects
        if isinstance(command := effect.envelope.command, Step) and effect.status is not EffectStatus.IN_PROGRESS
    }


def _arguments(command: Step) -> list[Any]:
    given = command.input if isinstance(command.input, dict) else {}
    arguments = given.get("kwargs")
    return list(arguments.values()) if isinstance(arguments, dict) else []


def check_outcome(case: Case, outcome: object) -> None:
    """Compare how a process ended with what its case says."""
    if case.failure is None:
        assert outcome == Success(value=case.result)
    else:
        assert isinstance(outcome, Failure)
        assert outcome.code == case.failure
