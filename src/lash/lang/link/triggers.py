"""Links the operations on triggers, whose arguments are checked in full before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lash.lang.link import calls
from lash.lang.link.body import Body, Typed, dotted_path, similar
from lash.lang.printing.types import type_text
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.program import Parameter, ProcessDeclaration
from lash.lang.syntax.types import ANY, BOOL, ListType, RefType, TriggerHandleType, Type

EVENT_KEY: Final = "$lash.trigger.event"
"""The key of the record that stands for the event in linked inputs of a trigger."""

_KEYS: Final = {
    "register": (("source", "target", "inputs"), ("name",)),
    "list": ((), ("target", "name", "source_type", "enabled")),
    "cancel": (("handle",), ()),
}
"""Required and optional keys of the argument of each operation."""


def link_trigger_call(body: Body, node: nodes.ReceiverCall) -> Typed:
    """Link a call of ``triggers.register``, ``triggers.list`` or ``triggers.cancel``."""
    record, values = _argument(body, node)
    if node.operation == "register":
        linked, result = _register(body, values)
    else:
        linked = {key: body.node(value) for key, value in values.items()}
        result = BOOL if node.operation == "cancel" else ListType(ANY)
    argument = replace(record, entries=tuple(linked.items()))
    return Typed(replace(node, arguments=(argument,)), ANY, result)


def _argument(body: Body, node: nodes.ReceiverCall) -> tuple[nodes.Record, dict[str, Expression]]:
    """Return the only argument, a record literal with the keys of the operation."""
    required, optional = _KEYS[node.operation]
    argument = node.arguments[0] if len(node.arguments) == 1 else None
    if isinstance(argument, nodes.Record):
        keys = [key for key, _ in argument.entries]
        if set(required) <= set(keys) <= {*required, *optional} and len(set(keys)) == len(keys):
            return argument, dict(argument.entries)
    wanted = ", ".join((*required, *(f"{key}?" for key in optional)))
    message = f"`triggers.{node.operation}`: expected a record literal with {wanted}"
    raise body.context.error("trigger-shape", message, node.span)


def _register(body: Body, values: dict[str, Expression]) -> tuple[dict[str, Expression], Type]:
    context = body.context
    source = body.link(values["source"])
    event = context.catalogue.trigger_sources.get(source.type.name) if isinstance(source.type, RefType) else None
    if event is None or not isinstance(source.type, RefType):
        message = f"{type_text(source.type)} is not a trigger source"
        known = sorted(context.catalogue.trigger_sources)
        hint = f"sources are {', '.join(known)}" if known else "this host has no trigger sources"
        raise context.error("trigger-source", message, values["source"].span, hint)
    context.requirements.trigger_source(source.type.name)
    target = body.link(values["target"])
    if not isinstance(target.node, nodes.ProcessRef):
        message = f"target must be a process, got {type_text(target.type)}"
        raise context.error("trigger-target", message, values["target"].span, "write the name of the process itself")
    process = context.processes[target.node.process]
    inputs = _inputs(body, process, RefType(event), values["inputs"])
    linked: dict[str, Expression] = {"source": source.node, "target": target.node, "inputs": inputs}
    return {key: linked.get(key) or body.node(value) for key, value in values.items()}, TriggerHandleType(
        RefType(event)
    )


def _inputs(body: Body, process: ProcessDeclaration, event: RefType, value: Expression) -> Expression:
    """Link the record that maps the event and fixed values to the parameters of the process."""
    context = body.context
    if not isinstance(value, nodes.Record):
        raise context.error("trigger-inputs", "`inputs` must be a literal record", value.span)
    parameters = {parameter.name: parameter for parameter in process.parameters}
    linked: dict[str, Expression] = {}
    maps_event = False
    for name, mapped in value.entries:
        if name in linked:
            raise context.error("trigger-duplicate", f"`{name}` mapped twice", mapped.span)
        if name not in parameters:
            message = f"`{process.name}` has no `{name}`"
            raise context.error("trigger-unknown", message, mapped.span, similar(name, parameters))
        if _is_event(body, mapped):
            maps_event = True
            linked[name] = _event(body, process, parameters[name], event, mapped)
        else:
            linked[name] = calls.link_argument(body, process.name, parameters[name], mapped).node
    missing = next((name for name in parameters if name not in linked), None)
    if missing is not None:
        raise context.error("trigger-missing", f"`{missing}` not mapped", value.span)
    if not maps_event:
        raise context.error("trigger-no-event", "map `trigger.event` to some parameter", value.span)
    return replace(value, entries=tuple(linked.items()))


def _is_event(body: Body, node: Expression) -> bool:
    path = dotted_path(node)
    if path is None or path[:2] != ("trigger", "event") or "trigger" in body.names:
        return False
    if len(path) > 2:  # noqa: PLR2004 (a field of the event)
        message = "pass the whole event, not a field of it"
        raise body.context.error("trigger-event-projected", message, node.span, "read the field in the process")
    return True


def _event(
    body: Body, process: ProcessDeclaration, parameter: Parameter, event: RefType, node: Expression
) -> Expression:
    if not body.context.types.assignable(event, parameter.type):
        takes = f"`{process.name}.{parameter.name}` takes {type_text(parameter.type)}"
        message = f"source emits {event.name}, {takes}"
        raise body.context.error("trigger-event-mismatch", message, node.span)
    return nodes.Record(((EVENT_KEY, nodes.Bool(True, span=node.span)),), span=node.span)
