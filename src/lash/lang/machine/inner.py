"""One step of each kind of node that is evaluated inside the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lash.lang.machine.effects import Done, Failed, Pause
from lash.lang.machine.frames import Frame
from lash.lang.machine.types import schema_of_type
from lash.lang.syntax import nodes
from lash.lang.values import operators
from lash.lang.values.builtins import BUILTINS
from lash.lang.values.convert import display
from lash.lang.values.fault import Fault, FaultKind, type_error
from lash.lang.values.schema import type_value
from lash.lang.values.value import List, Record, Resource, Value, equal, kind, make_list, make_record, truthy, weight

if TYPE_CHECKING:
    from lash.lang.machine.machine import Machine

Step: TypeAlias = Callable[["Machine", Frame], Pause | None]
Apply: TypeAlias = Callable[["Machine", Any, list[Value]], Value]

_COST: Final = 64
"""How many bytes of its operands an operation handles in one step."""


def strict(apply: Apply) -> Step:
    """Return the step of a node whose children are all evaluated in order before it."""

    def step(machine: Machine, frame: Frame) -> None:
        done, op = len(frame.values), frame.op
        if done < len(op.children):
            machine.push(op.children[done])
        else:
            machine.deliver(apply(machine, op.node, frame.values))

    return step


def constant(read: Callable[[Machine, Any], Value]) -> Step:
    """Return the step of a node without children."""

    def step(machine: Machine, frame: Frame) -> None:
        machine.deliver(read(machine, frame.op.node))

    return step


def _variable(machine: Machine, node: nodes.Variable) -> Value:
    if node.name in machine.variables:
        return machine.variables[node.name]
    raise Fault(FaultKind.UNKNOWN_NAME, f"`{node.name}` has no value")


def _process_ref(machine: Machine, node: nodes.ProcessRef) -> Value:
    return machine.code.refs.process_values[node.process]


def _type_literal(machine: Machine, node: nodes.TypeLiteral) -> Value:
    return type_value(schema_of_type(node.type, machine.code.refs.types, machine.variables))


def _descriptor(_machine: Machine, node: nodes.HostDescriptor, values: list[Value]) -> Value:
    fields = {"$lash_host_descriptor_type": node.type_name, "$lash_host_descriptor_value": values[0]}
    return make_record(fields)


def _record(_machine: Machine, node: nodes.Record, values: list[Value]) -> Value:
    return make_record({key: value for (key, _), value in zip(node.entries, values, strict=True)})


def _assign(machine: Machine, node: nodes.Assign, values: list[Value]) -> Value:
    *indexes, value = values
    if not node.steps:
        machine.assign(node.root, value)
        return None
    if node.root not in machine.variables:
        raise Fault(FaultKind.UNKNOWN_NAME, f"`{node.root}` has no value", "assign a list or a record to it first")
    places = iter(indexes)
    path: list[Value] = [step.name if isinstance(step, nodes.FieldStep) else next(places) for step in node.steps]
    old = machine.variables[node.root]
    machine.left -= operators.copied(old, path) // _COST
    machine.assign(node.root, operators.write_path(old, path, value))
    return None


def _builtin(machine: Machine, node: nodes.BuiltinCall, values: list[Value]) -> Value:
    builtin = BUILTINS.get(node.name)
    if builtin is None:
        raise Fault(FaultKind.UNKNOWN_NAME, f"unknown builtin `{node.name}`")
    result = builtin.call(values)
    if not builtin.is_cheap:
        machine.left -= (weight(result) + sum(map(weight, values))) // _COST
    return result


_UNARY: Final[Mapping[str, Callable[[Value], Value]]] = {
    "negate": operators.negate,
    "not": lambda value: not truthy(value),
}
_BINARY: Final[Mapping[str, Callable[[Value, Value], Value]]] = {
    "add": operators.add,
    "subtract": operators.subtract,
    "multiply": operators.multiply,
    "divide": operators.divide,
    "modulo": operators.modulo,
    "equal": equal,
    "not-equal": operators.not_equal,
    "less": operators.less,
    "less-equal": operators.less_equal,
    "greater": operators.greater,
    "greater-equal": operators.greater_equal,
}


def _binary(machine: Machine, frame: Frame) -> None:
    node: Any = frame.op.node
    operation = _BINARY.get(node.operator)
    if operation is None:
        _logic(machine, frame, stops_at=node.operator == "or")
        return
    done = len(frame.values)
    if done < 2:  # noqa: PLR2004 (an operator has two sides)
        machine.push(frame.op.children[done])
        return
    left, right = frame.values
    machine.left -= (weight(left) + weight(right)) // _COST
    machine.deliver(operation(left, right))


def _logic(machine: Machine, frame: Frame, *, stops_at: bool) -> None:
    """Evaluate the right side only if the left one does not decide."""
    if frame.values and (len(frame.values) == 2 or truthy(frame.values[0]) is stops_at):  # noqa: PLR2004
        machine.deliver(truthy(frame.values[-1]))
    else:
        machine.push(frame.op.children[len(frame.values)])


def _block(machine: Machine, frame: Frame) -> None:
    if frame.at < len(frame.op.children):
        machine.trim(frame, 0)
        frame.at += 1
        machine.push(frame.op.children[frame.at - 1])
    else:
        machine.deliver(frame.values[-1] if frame.values else None)


def _if(machine: Machine, frame: Frame) -> None:
    condition, then, otherwise = frame.op.children
    frame.at += 1
    if frame.at == 1:
        machine.push(condition)
    elif frame.at == 2:  # noqa: PLR2004 (the branch)
        machine.push(then if truthy(machine.take(frame)) else otherwise)
    else:
        machine.deliver(frame.values[-1])


def _while(machine: Machine, frame: Frame) -> None:
    condition, body = frame.op.children
    if frame.at == 0:
        machine.trim(frame, 0)
        frame.at = 1
        machine.push(condition)
    elif truthy(machine.take(frame)):
        frame.at = 0
        machine.push(body)
    else:
        machine.deliver(None)


def _for(machine: Machine, frame: Frame) -> None:
    iterable, body = frame.op.children
    node: Any = frame.op.node
    if not frame.values:
        machine.push(iterable)
        return
    items = _items(frame.values[0])
    machine.trim(frame, 1)
    if frame.at < len(items.items):
        saved = machine.bind(node.binding, items.items[frame.at])
        if frame.saved is None:
            frame.saved = saved
        frame.at += 1
        machine.push(body)
    else:
        machine.leave(frame)
        machine.deliver(None)


def _items(value: Value) -> List:
    if not isinstance(value, List):
        raise Fault(FaultKind.LOOP, f"`for` needs a list, got {kind(value)}", "use keys() or values() for a record")
    return value


def _break(machine: Machine, _frame: Frame) -> None:
    machine.unwind(_loop_depth(machine))
    machine.leave(machine.frames[-1])
    machine.deliver(None)


def _continue(machine: Machine, _frame: Frame) -> None:
    machine.unwind(_loop_depth(machine))
    # A `for` continues with its next item; a `while` with its condition.
    machine.frames[-1].values.append(None)


def _loop_depth(machine: Machine) -> int:
    """Return how many frames remain if all inside the innermost loop are dropped."""
    depth = len(machine.frames)
    while not isinstance(machine.frames[depth - 1].op.node, nodes.For | nodes.While):
        depth -= 1
    return depth


def _unwrap(_machine: Machine, _node: nodes.Unwrap, values: list[Value]) -> Value:
    return unwrapped(values[0])


def unwrapped(result: Value) -> Value:
    """Return the value of a result, or raise Fault with its error."""
    if not isinstance(result, Record) or not isinstance(result.fields.get("ok"), bool):
        raise type_error(f"`?` needs a result with `ok`, got {kind(result)}")
    if result.fields["ok"]:
        return result.fields.get("value")
    error = result.fields.get("error")
    text = error if isinstance(error, str) else display(error)
    raise Fault(FaultKind.UNWRAP, text, "without `?` the program gets the result: look at `.ok` and `.error`")


def _end(machine: Machine, frame: Frame) -> Pause | None:
    """Evaluate the operand of a statement that ends the program, and end it."""
    if len(frame.values) < len(frame.op.children):
        machine.push(frame.op.children[0])
        return None
    value = frame.values[0] if frame.values else None
    if isinstance(frame.op.node, nodes.Fail):
        return Failed(value)
    return Done("finish" if isinstance(frame.op.node, nodes.Finish) else "submit", value)


def _list(_machine: Machine, _node: nodes.List, values: list[Value]) -> Value:
    return make_list(values)


INNER_STEPS: Final[Mapping[type[nodes.Node], Step]] = {
    nodes.Block: _block,
    nodes.Null: constant(lambda _machine, _node: None),
    nodes.Bool: constant(lambda _machine, node: bool(node.value)),
    nodes.Number: constant(lambda _machine, node: float(node.value)),
    nodes.String: constant(lambda _machine, node: str(node.value)),
    nodes.Variable: constant(_variable),
    nodes.ProcessRef: constant(_process_ref),
    nodes.ResourceRef: constant(lambda _machine, node: Resource(node.resource_type, node.alias)),
    nodes.TypeLiteral: constant(_type_literal),
    nodes.List: strict(_list),
    nodes.Record: strict(_record),
    nodes.HostDescriptor: strict(_descriptor),
    nodes.Assign: strict(_assign),
    nodes.BuiltinCall: strict(_builtin),
    nodes.Field: strict(lambda _machine, node, values: operators.read_field(values[0], node.name)),
    nodes.Index: strict(lambda _machine, _node, values: operators.read_index(values[0], values[1])),
    nodes.Unary: strict(lambda _machine, node, values: _UNARY[node.operator](values[0])),
    nodes.Binary: _binary,
    nodes.If: _if,
    nodes.For: _for,
    nodes.While: _while,
    nodes.Break: _break,
    nodes.Continue: _continue,
    nodes.Unwrap: strict(_unwrap),
    nodes.Submit: _end,
    nodes.Finish: _end,
    nodes.Fail: _end,
}
"""What the machine does alone; effects and comprehensions are beside it."""
