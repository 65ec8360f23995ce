from __future__ import annotations

from typing import ClassVar

from tests.proof.model.kit import run_machine
from tests.proof.model.process_rules import ProcessRules
from tests.proof.model.world import World


class ProcessMachine(ProcessRules):
    WEIGHTS: ClassVar[dict[str, int]] = {"append": 14, "consume": 4, "complete": 4, "signal": 6, "use_other_storage": 2}
    CLASSES: ClassVar[frozenset[str]] = frozenset(
        {
            *("create:again", "delete:ok", "delete:queued wakes", "jump", "jump back", "other storage"),
            *(f"register:{each}" for each in ("new", "known", "RegistrationConflict")),
            *(f"append:{each}" for each in ("new", "replayed", "EventConflict", "InvalidInput", "ProcessTerminal")),
            *(f"append:{each}" for each in ("ProcessNotFound", "ProcessPruned")),
            *(f"wake:{each}" for each in ("queued", "merged", "undeliverable", "no_target")),
            *(f"signal:{each}" for each in ("ok", "InvalidInput", "EventConflict", "ProcessPruned")),
            *(f"complete:{each}" for each in ("ok", "EventConflict", "ProcessTerminal", "InvalidInput")),
            *(f"abandon:{each}" for each in ("ok", "Conflict", "ProcessTerminal")),
            *(f"request_{each}:ok" for each in ("cancel", "abandon")),
            *(f"set_wait:{each}" for each in ("ok", "ProcessTerminal")),
            *("clear_wait:ok", "external_ref:ok", "prune:some", "prune:none", "consume:ok"),
            *("acknowledge:True", "acknowledge:False", "signal_at:ok", "wakes_after:ok", "recent:ok", "list:ok"),
        }
    )


def test_process(world: World) -> None:
    """Whatever happens to processes, both backends agree with the model."""
    run_machine(ProcessMachine, world, examples=18, steps=40)
