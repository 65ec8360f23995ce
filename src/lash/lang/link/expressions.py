"""Links expressions: every name becomes a variable, a process or a module, and types are inferred."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lash.lang.link import calls, statements
from lash.lang.link.body import Body, Typed, dotted_path, joined, similar, without_authority
from lash.lang.link.builtins import RESULTS
from lash.lang.link.types import bounded, references, union_of
from lash.lang.syntax import nodes, types
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.types import ANY, BOOL, FLOAT, INT, NULL, STR, ListType, ObjectField, ObjectType, Type
from lash.lang.values.builtins import BUILTINS

_COMPARISONS: Final = frozenset({"equal", "not-equal", "less", "less-equal", "greater", "greater-equal", "and", "or"})
_LARGEST_INT: Final = 2.0**53
"""Beyond it, doubles do not hold every integer."""


def link_expression(body: Body, node: Expression) -> Typed:
    """Link a node and everything below it, or raise ProgramError at the first error."""
    match node:
        case nodes.Null():
            return Typed(node, NULL)
        case nodes.Bool():
            return Typed(node, BOOL)
        case nodes.Number():
            return Typed(node, INT if node.value.is_integer() and node.value <= _LARGEST_INT else FLOAT)
        case nodes.String():
            return Typed(node, STR)
        case nodes.Variable() | nodes.Field():
            return _name_or_field(body, node)
        case nodes.List():
            items = [body.link(item) for item in node.items]
            item_type = joined(body.context, (item.type for item in items)) if items else ANY
            return Typed(replace(node, items=tuple(item.node for item in items)), _list_of(item_type))
        case nodes.Record():
            return _record(body, node)
        case nodes.Index():
            return _index(body, node)
        case nodes.Unary():
            operand = body.link(node.operand)
            kind = BOOL if node.operator == "not" else _arithmetic(operand.type, INT)
            return Typed(replace(node, operand=operand.node), kind)
        case nodes.Binary():
            return _binary(body, node)
        case nodes.TypeLiteral():
            _check_type_literal(body, node)
            return Typed(node, types.DICT)
        case nodes.BuiltinCall():
            return _builtin(body, node)
        case nodes.ListComp():
            return _comprehension(body, node)
        case nodes.ReceiverCall():
            return calls.link_receiver_call(body, node)
        case nodes.Await():
            return _await(body, node)
        case nodes.Unwrap():
            operand = body.link(node.operand)
            return Typed(replace(node, operand=operand.node), operand.result)
        case nodes.Start():
            return calls.link_start(body, node)
        case nodes.ProcessRef():
            return calls.link_process_ref(body, node)
        case _:
            return statements.link_statement(body, node)


def _name_or_field(body: Body, node: nodes.Variable | nodes.Field) -> Typed:
    path = dotted_path(node)
    if path is not None and path[0] not in body.names:
        found = _host_or_process(body, node, path)
        if found is not None:
            return found
    if isinstance(node, nodes.Field):
        return _field(body, node)
    if node.name not in body.names and body.process is not None:
        raise _unknown_name(body, node, body.process.name)
    return Typed(node, body.names.get(node.name) or ANY)


def _host_or_process(body: Body, node: Expression, path: tuple[str, ...]) -> Typed | None:
    """Link a chain that does not begin with a variable, if it is a module, a process or a misplaced event."""
    context = body.context
    if path[:2] == ("trigger", "event"):
        raise context.error(
            "trigger-event-misplaced",
            "`trigger.event` is possible only inside the `inputs` of `triggers.register`",
            node.span,
        )
    module = context.catalogue.modules.get(".".join(path))
    if module is not None:
        context.requirements.module(module.alias)
        found = nodes.ResourceRef(module.path, module.resource_type, module.alias, span=node.span)
        return Typed(found, types.RefType(module.resource_type))
    if len(path) == 1 and path[0] in context.processes:
        return calls.link_process_ref(body, nodes.ProcessRef(path[0], span=node.span))
    return None


def _unknown_name(body: Body, node: nodes.Variable, process: str) -> Exception:
    context = body.context
    longer = [path for path in context.catalogue.modules if path.startswith(f"{node.name}.")]
    if longer:
        return calls.ambiguous_module(body, node.name, longer, node.span)
    message = f"`{node.name}` is not defined in this process (processes do not see outer variables)"
    hint = similar(node.name, (*body.names, *context.catalogue.modules))
    return context.error(
        "unknown-name", message, node.span, hint or f"add a parameter to `{process}` and pass the value"
    )


def _field(body: Body, node: nodes.Field) -> Typed:
    target = body.link(node.target)
    _refuse_opaque(body, target, f".{node.name}", node)
    kind = body.context.types.resolve(target.type)
    found: Type = ANY
    if isinstance(kind, ObjectType):
        field = next((each for each in kind.fields if each.name == node.name), None)
        if field is not None:
            found = union_of((field.type, NULL)) if field.optional else field.type
    return Typed(replace(node, target=target.node), without_authority(body.context, found))


def _index(body: Body, node: nodes.Index) -> Typed:
    target, index = body.link(node.target), body.link(node.index)
    _refuse_opaque(body, target, "[...]", node)
    return Typed(replace(node, target=target.node, index=index.node), ANY)


def _refuse_opaque(body: Body, target: Typed, access: str, node: Expression) -> None:
    kind = body.context.types.resolve(target.type)
    if isinstance(kind, types.RefType) and body.context.types.is_opaque(kind.name):
        message = f"`{kind.name}` values are opaque; `{access}` is not possible"
        is_field = isinstance(node, nodes.Field) and body.context.types.is_resource(kind.name)
        hint = f"call an operation: `{access}(...)`" if is_field else None
        raise body.context.error("opaque-access", message, node.span, hint)


def _record(body: Body, node: nodes.Record) -> Typed:
    entries = [(key, body.link(value)) for key, value in node.entries]
    # The last of several equal keys wins.
    kinds = {key: without_authority(body.context, value.type) for key, value in entries}
    kind = ObjectType(tuple(ObjectField(key, each) for key, each in kinds.items()))
    return Typed(replace(node, entries=tuple((key, value.node) for key, value in entries)), bounded(kind, types.DICT))


def _binary(body: Body, node: nodes.Binary) -> Typed:
    left, right = body.link(node.left), body.link(node.right)
    linked = replace(node, left=left.node, right=right.node)
    if node.operator in _COMPARISONS:
        return Typed(linked, BOOL)
    if node.operator == "add" and STR in (left.type, right.type):
        return Typed(linked, STR)
    if node.operator == "add" and isinstance(left.type, ListType) and isinstance(right.type, ListType):
        return Typed(linked, _list_of(union_of((left.type.item, right.type.item))))
    if node.operator == "divide":
        return Typed(linked, FLOAT)
    return Typed(linked, _arithmetic(left.type, right.type))


def _list_of(item: Type) -> Type:
    return ListType(bounded(item, ANY))


def _arithmetic(left: Type, right: Type) -> Type:
    """Return the type of a sum or product: of integers an integer, of numbers a number, else unknown."""
    if left == right == INT:
        return INT
    return FLOAT if {left, right} <= {INT, FLOAT, BOOL, NULL} else ANY


def _check_type_literal(body: Body, node: nodes.TypeLiteral) -> None:
    """Check the names in a type: declared types, types of the host, or variables with a type."""
    for reference in references(node.type):
        variable = reference.name.partition(".")[0]
        known = body.context.types.knows(reference.name) or variable in body.names
        if not known and body.process is not None:
            raise unknown_type(body, reference)
    body.context.require_types(node.type)


def unknown_type(body: Body, reference: types.RefType) -> Exception:
    """Return the error for a type that neither the module nor the host has."""
    context = body.context
    known = (*context.types.declared, *context.catalogue.data_types, *context.catalogue.resource_types)
    message = f"no type called `{reference.name}` in this module or host"
    return context.error("unknown-type", message, reference.span, similar(reference.name, known))


def _builtin(body: Body, node: nodes.BuiltinCall) -> Typed:
    builtin = BUILTINS.get(node.name)
    if builtin is None:
        raise calls.unknown_builtin(body, node)
    if not builtin.accepts(len(node.arguments)):
        message = f"`{node.name}` takes {builtin.arity}, got {len(node.arguments)}"
        raise body.context.error("builtin-arguments", message, node.span, f"write `{builtin.signature}`")
    arguments = tuple(body.node(argument) for argument in node.arguments)
    return Typed(replace(node, arguments=arguments), RESULTS[node.name])


def _comprehension(body: Body, node: nodes.ListComp) -> Typed:
    """Link a comprehension; its variables are not visible after it, other assignments are not possible in it."""
    inner = body.child()
    clauses: list[nodes.Clause] = []
    for clause in node.clauses:
        if isinstance(clause, nodes.ForClause):
            iterable = inner.link(clause.iterable)
            inner.names[clause.binding] = statements.item_type(inner, iterable.type)
            clauses.append(replace(clause, iterable=iterable.node))
        else:
            clauses.append(replace(clause, condition=inner.node(clause.condition)))
    element = inner.link(node.element)
    kind = _list_of(without_authority(body.context, element.type))
    return Typed(replace(node, element=element.node, clauses=tuple(clauses)), kind)


def _await(body: Body, node: nodes.Await) -> Typed:
    operand = body.link(node.operand)
    if isinstance(operand.node, nodes.HostDescriptor):
        message = f"`{operand.node.type_name}` is made at once; do not await it"
        raise body.context.error("awaited-value", message, node.span, "remove `await`")
    kind = operand.type if isinstance(node.operand, nodes.Unwrap) else ANY
    return Typed(replace(node, operand=operand.node), kind, operand.result)
