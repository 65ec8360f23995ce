"""Links statements: assignments, branches, loops, and what acts on the run of a program."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from lash.lang.link.body import Body, Typed, joined, similar, without_authority
from lash.lang.module.names import bound_names
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.types import ANY, NULL, ListType, Type

_SIGNAL_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def link_statement(body: Body, node: Expression) -> Typed:
    """Link a node that is not a plain expression."""
    match node:
        case nodes.Block():
            return _block(body, node)
        case nodes.Labelled():
            body.context.requirements.labels = True
            inner = body.link(node.expression)
            return Typed(replace(node, expression=inner.node), inner.type)
        case nodes.Assign():
            return _assign(body, node)
        case nodes.If():
            return _if(body, node)
        case nodes.For():
            return _for(body, node)
        case nodes.While():
            return _while(body, node)
        case nodes.SleepFor() | nodes.SleepUntil():
            body.context.require("sleep", node.span)
            return Typed(replace(node, operand=body.node(node.operand)), NULL)
        case nodes.WaitSignal():
            return _wait_signal(body, node)
        case nodes.SignalRun():
            return _signal_run(body, node)
        case nodes.Finish():
            operand = Typed(nodes.Null(), NULL) if node.operand is None else body.link(node.operand)
            body.finishes.append(without_authority(body.context, operand.type))
            return Typed(node if node.operand is None else replace(node, operand=operand.node), NULL)
        case nodes.Submit():
            return Typed(node if node.operand is None else replace(node, operand=body.node(node.operand)), NULL)
        case nodes.Yield() | nodes.Wake():
            value = body.link(node.operand)
            return Typed(replace(node, operand=value.node), NULL)
        case nodes.Cancel():
            return Typed(replace(node, operand=body.node(node.operand)), ANY)
        case nodes.Print() | nodes.Fail():
            return Typed(replace(node, operand=body.node(node.operand)), NULL)
        case _:
            return Typed(node, NULL)


def _block(body: Body, node: nodes.Block) -> Typed:
    """Link statements; results behind one that ends the program cannot be reached and do not count."""
    statements: list[Expression] = []
    kind: Type = NULL
    reached = True
    for statement in node.statements:
        known = len(body.finishes)
        linked = body.link(statement)
        if not reached:
            del body.finishes[known:]
        reached = reached and not ends(statement)
        statements.append(linked.node)
        kind = linked.type
    return Typed(replace(node, statements=tuple(statements)), kind)


def ends(node: Expression) -> bool:
    """Return whether nothing after this statement can run. Loops always fall through."""
    match node:
        case nodes.Finish() | nodes.Fail() | nodes.Submit():
            return True
        case nodes.Labelled():
            return ends(node.expression)
        case nodes.Block():
            return any(map(ends, node.statements))
        case nodes.If():
            return ends(node.then) and ends(node.otherwise)
        case _:
            return False


def _assign(body: Body, node: nodes.Assign) -> Typed:
    steps = tuple(
        replace(step, index=body.node(step.index)) if isinstance(step, nodes.IndexStep) else step for step in node.steps
    )
    if steps and body.process is not None and node.root not in body.names:
        message = f"`{node.root}` is not defined in this process (processes do not see outer variables)"
        hint = similar(node.root, body.names) or f"assign a value to it first: `{node.root} = {{}}`"
        raise body.context.error("unknown-name", message, node.span, hint)
    value = body.link(node.value)
    body.names[node.root] = ANY if steps else value.type
    return Typed(replace(node, steps=steps, value=value.node), value.type)


def _if(body: Body, node: nodes.If) -> Typed:
    condition = body.node(node.condition)
    yes, no = body.child(), body.child()
    then, otherwise = yes.link(node.then), no.link(node.otherwise)
    # A branch that ends the program leaves no names behind.
    live = [branch for branch, part in ((yes, node.then), (no, node.otherwise)) if not ends(part)]
    body.merge(yes, no, live=live or [yes, no])
    linked = replace(node, condition=condition, then=then.node, otherwise=otherwise.node)
    return Typed(linked, joined(body.context, (then.type, otherwise.type)))


def item_type(body: Body, iterable: Type) -> Type:
    """Return the type of a loop variable."""
    kind = body.context.types.resolve(iterable)
    return without_authority(body.context, kind.item) if isinstance(kind, ListType) else ANY


def _for(body: Body, node: nodes.For) -> Typed:
    iterable = body.link(node.iterable)
    inner = body.child()
    inner.forget_types(bound_names(node.body))
    inner.names[node.binding] = item_type(body, iterable.type)
    block = inner.node(node.body)
    _leave_loop(body, inner, node.binding)
    return Typed(replace(node, iterable=iterable.node, body=block), NULL)


def _while(body: Body, node: nodes.While) -> Typed:
    inner = body.child()
    inner.forget_types(bound_names(node.body))
    condition = inner.node(node.condition)
    block = inner.node(node.body)
    _leave_loop(body, inner, None)
    return Typed(replace(node, condition=condition, body=block), NULL)


def _leave_loop(body: Body, inner: Body, binding: str | None) -> None:
    """Make the assignments of a loop visible after it; its variable is what it was before."""
    for name, kind in inner.names.own.items():
        if name != binding:
            body.names[name] = kind if body.names.get(name) == kind else ANY


def _wait_signal(body: Body, node: nodes.WaitSignal) -> Typed:
    context = body.context
    if body.process is None:
        raise context.error("lifecycle-outside-process", "`wait_signal` only works in a process body", node.span)
    context.require("process_signals", node.span)
    declared = {signal.name: signal.type for signal in body.process.signals}
    if node.name not in declared:
        message = f"`{body.process.name}` declares no signal `{node.name}`"
        hint = similar(node.name, declared) or f"write `signals {{ {node.name}: any }}` behind its parameters"
        raise context.error("unknown-signal", message, node.span, hint)
    return Typed(node, without_authority(context, declared[node.name]))


def _signal_run(body: Body, node: nodes.SignalRun) -> Typed:
    body.context.require("process_signals", node.span)
    if not _SIGNAL_NAME.fullmatch(node.name):
        message = f"`{node.name}` cannot be the name of a signal; use letters, digits, `_` and `-`"
        raise body.context.error("unknown-signal", message, node.span)
    run, payload = body.node(node.run), body.node(node.payload)
    return Typed(replace(node, run=run, payload=payload), NULL)
