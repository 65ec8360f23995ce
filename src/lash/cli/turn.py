"""The committed turns of a session with the steps that they ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from lash.cli.output import one_line
from lash.cli.text import moment, plural, shortened

if TYPE_CHECKING:
    from lash.cli.shell import Shell
    from lash.model.session.node import Node
    from lash.model.session.trace import TraceStep, TurnRecord, TurnTrace
    from lash.stores.storage import Storage

LAST_NODES: Final = 1_000
"""How many nodes at the end of the active path are searched for turns."""
_PAGE: Final = 500
_ERROR_WIDTH: Final = 120


def turns_of(nodes: Iterable[Node]) -> list[str]:
    """Return the turns that wrote nodes, each once, in the order of the nodes."""
    return list(dict.fromkeys(turn_id for node in nodes if (turn_id := turn_of(node)) is not None))


def turn_of(node: Node) -> str | None:
    """Return the turn that wrote a node, if one did."""
    from lash.model.causal import TurnCause

    cause = node.caused_by
    return cause.turn_id if isinstance(cause, TurnCause) else None


async def read_turns(storage: Storage, session_id: str, turn_ids: list[str]) -> dict[str, TurnRecord]:
    """Return the records of turns that are kept, in the order of the ids."""
    session = storage.session(session_id)
    found: dict[str, TurnRecord] = {}
    for first in range(0, len(turn_ids), _PAGE):
        found |= await session.turns(turn_ids[first : first + _PAGE])
    return {turn_id: found[turn_id] for turn_id in turn_ids if turn_id in found}


async def show_turns(shell: Shell, storage: Storage, session_id: str, tail: int | None) -> None:
    """Show the turns of the active path with their steps, the oldest first."""
    from lash.model.session.session import ActivePath

    read = await storage.session(session_id).load(ActivePath(last=LAST_NODES))
    turn_ids = [] if read is None else turns_of(read.graph.nodes)
    wanted = turn_ids if tail is None else turn_ids[len(turn_ids) - min(tail, len(turn_ids)) :]
    turns = await read_turns(storage, session_id, wanted)
    if shell.json:
        shell.values(list(turns.values()))
        return
    if not turns and tail != 0:
        shell.note(f"session {session_id!r} has no records of turns; lash db prune deletes old ones")
    for turn in turns.values():
        shell.lines(_turn_lines(turn))


def _turn_lines(turn: TurnRecord) -> Iterator[str]:
    trace = turn.trace
    attempts = "" if trace is None else _attempts(trace)
    worker = f"  on {trace.worker}" if trace is not None and trace.worker else ""
    yield f"{moment(turn.committed_at_ms)}  {turn.turn_id}  revision {turn.revision}{attempts}{worker}"
    if trace is not None:
        yield from step_lines(trace, "    ")


def step_lines(trace: TurnTrace, lead: str) -> Iterator[str]:
    """Yield a line for each step of a trace, with a mark where an attempt ended before the turn was committed."""
    attempt = 1
    for place, step in enumerate(trace.steps):
        if trace.left_out and place == len(trace.steps) // 2:
            yield f"{lead}... {plural(trace.left_out, 'step')} left out"
        if step.attempt > attempt:
            yield f"{lead}x attempt {step.attempt - 1} ended here"
            attempt = step.attempt
        yield lead + _step_line(step)
    if trace.attempts > attempt:
        yield f"{lead}x attempt {trace.attempts - 1} ended here"


def _step_line(step: TraceStep) -> str:
    kind = "" if step.kind == "step" else f"{step.kind.replace('_', ' ')} "
    tries = f"  {plural(step.tries, 'try', 'tries')}" if step.tries > 1 else ""
    error = "" if step.error is None else f"  failed: {shortened(one_line(step.error), _ERROR_WIDTH)}"
    return f"{moment(step.began_at_ms)}  {kind}{one_line(step.name)}  took {step.took_ms / 1_000:g} s{tries}{error}"


def _attempts(trace: TurnTrace) -> str:
    if trace.attempts == 1:
        return ""
    ended = [f"{trace.failures} failed"] * (trace.failures > 0) + [f"{trace.crashes} crashed"] * (trace.crashes > 0)
    return f"  attempt {trace.attempts} ({', '.join(ended)})"
