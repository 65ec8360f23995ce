"""One step of each kind of node that asks the host for something.

A node asks once all its children have values. The answer is one value more; the node then delivers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from lash.lang.machine import effects
from lash.lang.machine.code import BatchPlan, Shape
from lash.lang.machine.effects import Effect, Pause
from lash.lang.machine.frames import Frame
from lash.lang.machine.inner import Step, unwrapped
from lash.lang.syntax import nodes
from lash.lang.values.fault import type_error
from lash.lang.values.value import List, Record, Resource, Value, kind, make_list, make_record

if TYPE_CHECKING:
    from lash.lang.machine.machine import Machine

_HANDLE: Final = "__handle__"


def process_handle(process_id: str) -> Value:
    """Return the value that stands for a process in a program."""
    return make_record({_HANDLE: "process", "id": process_id})


def _asking(ask: Callable[[Machine, Any, list[Value], str], Effect]) -> Step:
    """Return the step of a node that asks for one effect and has its answer as its value."""

    def step(machine: Machine, frame: Frame) -> Pause | None:
        op, done = frame.op, len(frame.values)
        if done < len(op.children):
            machine.push(op.children[done])
        elif done == len(op.children):
            return ask(machine, op.node, frame.values, op.node_id)
        else:
            machine.deliver(frame.values[-1])
        return None

    return step


def _operation(machine: Machine, node: nodes.ReceiverCall, values: list[Value], node_id: str) -> Effect:
    receiver = _authority(values[0], node.operation)
    return effects.Operation(machine.site(node_id), receiver, node.operation, tuple(values[1:]))


def _authority(value: Value, name: str) -> Resource:
    if not isinstance(value, Resource):
        raise type_error(f"`.{name}()` needs a module authority on its left, got {kind(value)}")
    return value


def _start(machine: Machine, node: nodes.Start, values: list[Value], node_id: str) -> Effect:
    arguments = {key: value for (key, _), value in zip(node.arguments, values, strict=True)}
    return effects.StartProcess(machine.site(node_id), node.process, arguments)


def _sleep_for(machine: Machine, _node: nodes.SleepFor, values: list[Value], node_id: str) -> Effect:
    return effects.Sleep(machine.site(node_id), "for", values[0])


def _sleep_until(machine: Machine, _node: nodes.SleepUntil, values: list[Value], node_id: str) -> Effect:
    return effects.Sleep(machine.site(node_id), "until", values[0])


def _wait_signal(machine: Machine, node: nodes.WaitSignal, _values: list[Value], node_id: str) -> Effect:
    return effects.WaitSignal(machine.site(node_id), node.name)


def _signal_run(machine: Machine, node: nodes.SignalRun, values: list[Value], node_id: str) -> Effect:
    process_id = _process_id(values[0], "signal_run")
    return effects.SendSignal(machine.site(node_id), process_id, node.name, values[1])


def _cancel(machine: Machine, _node: nodes.Cancel, values: list[Value], node_id: str) -> Effect:
    return effects.CancelProcess(machine.site(node_id), _process_id(values[0], "cancel"))


def _process_id(value: Value, what: str) -> str:
    found = _handle(value)
    if found is None:
        raise type_error(f"{what} needs the handle of a process, got {kind(value)}")
    return found


def _yield(machine: Machine, _node: nodes.Yield, values: list[Value], node_id: str) -> Effect:
    return effects.ProcessEvent(machine.site(node_id), "yield", values[0])


def _wake(machine: Machine, _node: nodes.Wake, values: list[Value], node_id: str) -> Effect:
    return effects.ProcessEvent(machine.site(node_id), "wake", values[0])


def _print(machine: Machine, _node: nodes.Print, values: list[Value], node_id: str) -> Effect:
    return effects.Print(machine.site(node_id), values[0])


def _await(machine: Machine, frame: Frame) -> Pause | None:
    """Wait for every process in a value, one after the other; other values stay as they are."""
    op, values = frame.op, frame.values
    if len(values) < len(op.children):
        machine.push(op.children[len(values)])
        return None
    if op.batch is not None:
        return _batch(machine, frame, op.batch)
    waited = values[1:]
    return _wait_for(machine, frame, list(_handles(values[0])), waited, lambda results: _filled(values[0], results))


def _batch(machine: Machine, frame: Frame, plan: BatchPlan) -> Pause | None:
    values, given = frame.values, len(frame.op.children)
    if len(values) == given:
        operations = tuple(
            effects.Operation(
                machine.site(call.node_id),
                _authority(values[call.receiver], call.name),
                call.name,
                tuple(values[place] for place in call.arguments),
            )
            for call in plan.calls
        )
        return effects.Batch(operations)
    # All have ended; the first in the order of the source that failed ends the program.
    results = values[given : given + len(plan.calls)]
    answers = [unwrapped(each) if call.unwraps else each for call, each in zip(plan.calls, results, strict=True)]
    handles = [each for place in _plain_places(plan.shape) for each in _handles(values[place])]
    waited = values[given + len(plan.calls) :]
    return _wait_for(machine, frame, handles, waited, lambda ends: _shaped(plan.shape, values, answers, ends))


def _wait_for(
    machine: Machine,
    frame: Frame,
    handles: list[str],
    waited: list[Value],
    finish: Callable[[Iterator[Value]], Value],
) -> Pause | None:
    if len(waited) < len(handles):
        return effects.AwaitProcess(machine.site(frame.op.node_id), handles[len(waited)])
    machine.deliver(finish(iter(waited)))
    return None


def _plain_places(shape: Shape) -> Iterator[int]:
    """Yield the places of what is not an operation in a batch, in the order of the source."""
    if shape[0] == "value":
        yield shape[1]
    elif shape[0] == "list":
        for inner in shape[1]:
            yield from _plain_places(inner)
    elif shape[0] == "record":
        for _, inner in shape[1]:
            yield from _plain_places(inner)


def _shaped(shape: Shape, values: list[Value], answers: list[Value], ends: Iterator[Value]) -> Value:
    if shape[0] == "call":
        return answers[shape[1]]
    if shape[0] == "value":
        return _filled(values[shape[1]], ends)
    if shape[0] == "list":
        return make_list([_shaped(inner, values, answers, ends) for inner in shape[1]])
    return make_record({key: _shaped(inner, values, answers, ends) for key, inner in shape[1]})


def _handle(value: Value) -> str | None:
    """Return the id of the process that a value is the handle of."""
    if not isinstance(value, Record) or value.fields.get(_HANDLE) != "process":
        return None
    process_id = value.fields.get("id")
    return process_id if isinstance(process_id, str) else None


def _handles(value: Value) -> Iterator[str]:
    """Yield the processes in a value, in its order."""
    found = _handle(value)
    if found is not None:
        yield found
    elif isinstance(value, List):
        for item in value.items:
            yield from _handles(item)
    elif isinstance(value, Record):
        for item in value.fields.values():
            yield from _handles(item)


def _filled(value: Value, ends: Iterator[Value]) -> Value:
    """Return a value with the results of processes in the places of their handles."""
    if _handle(value) is not None:
        return next(ends)
    if isinstance(value, List):
        return make_list([_filled(item, ends) for item in value.items])
    if isinstance(value, Record):
        return make_record({key: _filled(item, ends) for key, item in value.fields.items()})
    return value


OUTER_STEPS: Final[Mapping[type[nodes.Node], Step]] = {
    nodes.ReceiverCall: _asking(_operation),
    nodes.Start: _asking(_start),
    nodes.SleepFor: _asking(_sleep_for),
    nodes.SleepUntil: _asking(_sleep_until),
    nodes.WaitSignal: _asking(_wait_signal),
    nodes.SignalRun: _asking(_signal_run),
    nodes.Cancel: _asking(_cancel),
    nodes.Yield: _asking(_yield),
    nodes.Wake: _asking(_wake),
    nodes.Print: _asking(_print),
    nodes.Await: _await,
}
"""What the machine asks its host for."""
