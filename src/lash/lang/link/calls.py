"""Links calls: operations and constructors of the host, and starts of processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lash.lang.host.catalogue import ModuleInstance, Signature
from lash.lang.host.environment import TRIGGERS
from lash.lang.link import triggers
from lash.lang.link.body import Body, Typed, dotted_path, joined, similar
from lash.lang.printing.types import type_text
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.program import Parameter
from lash.lang.syntax.span import Span
from lash.lang.syntax.types import ANY, NULL, ListType, RefType, Type
from lash.lang.values.builtins import BUILTINS


def link_receiver_call(body: Body, node: nodes.ReceiverCall) -> Typed:
    """Link ``receiver.operation(...)``: a constructor of the host, or an operation of an authority."""
    path = dotted_path(node.receiver)
    if path is not None and path[0] not in body.names:
        constructor = ".".join((*path, node.operation))
        if constructor in body.context.catalogue.constructors:
            return _constructor(body, node, constructor)
        module = body.context.catalogue.modules.get(".".join(path))
        if module is None:
            raise _unknown_module(body, node, ".".join(path))
        return _module_call(body, node, module)
    receiver = body.link(node.receiver)
    resource_type = body.context.types.authority(receiver.type)
    if resource_type is None:
        message = f"`.{node.operation}()` needs a module authority on its left"
        hint = similar(node.operation, BUILTINS, "{}(...)")
        raise body.context.error("unresolved-receiver", message, node.span, hint)
    signature = _signature(body, node, resource_type)
    body.context.requirements.operation(resource_type, node.operation, None)
    return _operation(body, replace(node, receiver=receiver.node), signature)


def _module_call(body: Body, node: nodes.ReceiverCall, module: ModuleInstance) -> Typed:
    signature = _signature(body, node, module.resource_type)
    if node.operation not in module.operations:
        message = f"module `{module.alias}` has no operation `{node.operation}`"
        raise _unknown_operation(body, node, message, module.operations)
    receiver = nodes.ResourceRef(module.path, module.resource_type, module.alias, span=node.receiver.span)
    node = replace(node, receiver=receiver)
    if module.alias == TRIGGERS:
        body.context.require("triggers", node.span)
        linked = triggers.link_trigger_call(body, node)
        body.context.requirements.operation(module.resource_type, node.operation, module.alias)
        return linked
    body.context.requirements.operation(module.resource_type, node.operation, module.alias)
    return _operation(body, node, signature)


def _signature(body: Body, node: nodes.ReceiverCall, resource_type: str) -> Signature:
    signatures = body.context.catalogue.resource_types[resource_type]
    if node.operation not in signatures:
        message = f"{resource_type} has no operation `{node.operation}`"
        raise _unknown_operation(body, node, message, signatures)
    return signatures[node.operation]


def _unknown_operation(body: Body, node: nodes.ReceiverCall, message: str, known: Iterable[str]) -> Exception:
    names = sorted(known)
    hint = similar(node.operation, names) or (f"it has {', '.join(names)}" if names else None)
    return body.context.error("unknown-operation", message, node.span, hint)


def _operation(body: Body, node: nodes.ReceiverCall, signature: Signature) -> Typed:
    arguments = [body.link(argument) for argument in node.arguments]
    actual = _arguments_type(body, arguments)
    if not body.context.types.assignable(actual, signature.input, lenient=True):
        message = f"`{node.operation}` takes {type_text(signature.input)}, got {type_text(actual)}"
        raise body.context.error("operation-input", message, node.span)
    return Typed(replace(node, arguments=tuple(each.node for each in arguments)), ANY, signature.output)


def _arguments_type(body: Body, arguments: Sequence[Typed]) -> Type:
    """Return what an operation gets: null, its only argument, or a list of its arguments."""
    if not arguments:
        return NULL
    kind = joined(body.context, (argument.type for argument in arguments))
    return kind if len(arguments) == 1 else ListType(kind)


def _constructor(body: Body, node: nodes.ReceiverCall, path: str) -> Typed:
    constructor = body.context.catalogue.constructors[path]
    if len(node.arguments) != 1:
        message = f"`{path}` takes 1 argument, got {len(node.arguments)}"
        raise body.context.error("constructor-input", message, node.span)
    argument = body.link(node.arguments[0])
    if not body.context.types.assignable(argument.type, constructor.input, lenient=True):
        message = f"`{path}` takes {type_text(constructor.input)}, got {type_text(argument.type)}"
        raise body.context.error("constructor-input", message, node.span)
    body.context.requirements.constructor(path)
    found = nodes.HostDescriptor(constructor.type_name, argument.node, span=node.span)
    return Typed(found, RefType(constructor.type_name))


def _unknown_module(body: Body, node: nodes.ReceiverCall, path: str) -> Exception:
    context = body.context
    if path == TRIGGERS and not context.environment.abilities.triggers:
        return context.error("feature-disabled", "this host does not allow triggers", node.span)
    longer = [known for known in context.catalogue.modules if known.startswith(f"{path}.")]
    if longer:
        return ambiguous_module(body, path, longer, node.receiver.span)
    known = sorted(context.catalogue.modules)
    hint = similar(path, known) or (f"the modules are {', '.join(known)}" if known else "this host has no modules")
    if path in context.processes:
        hint = f"`{path}` is a process: `start {path}(...)`"
    return context.error("unknown-module", f"host has no module `{path}`", node.receiver.span, hint)


def ambiguous_module(body: Body, path: str, longer: Sequence[str], span: Span | None) -> Exception:
    """Return the error for a path that is only the beginning of modules."""
    meant = " or ".join(f"`{found}`" for found in sorted(longer))
    message = f"`{path}` is not a module; did you mean {meant}?"
    return body.context.error("ambiguous-module", message, span)


def unknown_builtin(body: Body, node: nodes.BuiltinCall) -> Exception:
    """Return the error for a call of a name that is not a builtin: often a tool without its module."""
    context = body.context
    if node.name in context.processes:
        message = f"unknown builtin `{node.name}`"
        return context.error("unknown-builtin", message, node.span, f"start the process: `start {node.name}(...)`")
    modules = sorted(
        f"{alias}.{node.name}" for alias, module in context.catalogue.modules.items() if node.name in module.operations
    )
    if modules:
        message = f"host operations need their module path: `{modules[0]}`"
        return context.error("bare-tool-call", message, node.span, f"write `await {modules[0]}(...)`")
    message = f"unknown builtin `{node.name}`"
    return context.error("unknown-builtin", message, node.span, similar(node.name, BUILTINS, "{}(...)"))


def link_process_ref(body: Body, node: nodes.ProcessRef) -> Typed:
    """Link a process that is used as a value."""
    body.context.require("processes", node.span)
    return Typed(node, body.context.process_type(node.process))


def link_start(body: Body, node: nodes.Start) -> Typed:
    """Link the start of a process: every parameter gets one argument, and authorities are of its type."""
    context = body.context
    context.require("processes", node.span)
    process = context.processes.get(node.process)
    if process is None:
        message = f"no process called `{node.process}` in this module"
        raise context.error("unknown-process", message, node.span, similar(node.process, context.processes))
    parameters = {parameter.name: parameter for parameter in process.parameters}
    arguments: dict[str, Expression] = {}
    for name, value in node.arguments:
        if name in arguments:
            raise context.error("duplicate-argument", f"`{name}` given twice", value.span)
        if name not in parameters:
            hint = similar(name, parameters)
            raise context.error("unexpected-argument", f"`{process.name}` takes no `{name}`", value.span, hint)
        arguments[name] = link_argument(body, process.name, parameters[name], value).node
    missing = next((name for name in parameters if name not in arguments), None)
    if missing is not None:
        kind = type_text(parameters[missing].type)
        message = f"`{process.name}` needs `{missing}`"
        raise context.error("missing-argument", message, node.span, f"add `{missing}: ...`, which is {kind}")
    return Typed(replace(node, arguments=tuple(arguments.items())), ANY)


def link_argument(body: Body, process: str, parameter: Parameter, value: Expression) -> Typed:
    """Link the value for a parameter; a parameter for an authority needs one of exactly its type."""
    context = body.context
    linked = body.link(value)
    expected = context.types.authority(parameter.type)
    if expected is not None and context.types.authority(linked.type) != expected:
        actual = type_text(linked.type)
        message = f"`{process}.{parameter.name}` needs a {expected} authority, got {actual}"
        modules = sorted(key for key, each in context.catalogue.modules.items() if each.resource_type == expected)
        hint = f"pass a module of the host: {', '.join(modules)}" if modules else None
        raise context.error("argument-authority", message, value.span, hint)
    return linked
