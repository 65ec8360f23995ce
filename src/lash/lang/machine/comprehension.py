"""The steps of a list comprehension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lash.lang.machine.frames import Frame, Loop
from lash.lang.syntax import nodes
from lash.lang.values.fault import Fault, FaultKind
from lash.lang.values.value import List, ListBuilder, kind, truthy, weight

if TYPE_CHECKING:
    from lash.lang.machine.machine import Machine


def comprehend(machine: Machine, frame: Frame) -> None:
    """Evaluate the clause, or the element, that ``frame.at`` counts: even before its expression, odd after it."""
    node: Any = frame.op.node
    if frame.built is None:
        frame.built = ListBuilder()
    place, is_after = divmod(frame.at, 2)
    if not is_after:
        frame.at += 1
        machine.push(frame.op.children[place])
        return
    value = machine.take(frame)
    if place == len(node.clauses):
        frame.built.add(value)
        machine.hold(frame, weight(value))
        _advance(machine, frame, node)
    elif isinstance(node.clauses[place], nodes.ForClause):
        if not isinstance(value, List):
            raise Fault(FaultKind.LOOP, f"`for` needs a list, got {kind(value)}")
        saved = [machine.variables[node.clauses[place].binding]] if _is_bound(machine, node, place) else []
        frame.loops.append(Loop(place, value, 0, saved))
        machine.hold(frame, weight(value))
        _advance(machine, frame, node)
    elif truthy(value):
        frame.at += 1
    else:
        _advance(machine, frame, node)


def _advance(machine: Machine, frame: Frame, node: nodes.ListComp) -> None:
    """Continue with the next item of the innermost loop that has one, or end."""
    while frame.loops:
        loop = frame.loops[-1]
        clause: Any = node.clauses[loop.clause]
        if loop.index < len(loop.items.items):
            machine.assign(clause.binding, loop.items.items[loop.index])
            loop.index += 1
            frame.at = 2 * (loop.clause + 1)
            return
        machine.restore_binding(clause.binding, loop.saved)
        machine.hold(frame, -weight(frame.loops.pop().items))
    assert frame.built is not None
    machine.deliver(frame.built.done())


def _is_bound(machine: Machine, node: Any, place: int) -> bool:  # noqa: ANN401 (a comprehension)
    return node.clauses[place].binding in machine.variables
