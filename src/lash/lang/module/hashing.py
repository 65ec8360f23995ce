"""The hashes that identify a module, its processes, and what it requires.

A hash is over a stream of atoms: the length of a text in UTF-8, `:`, the text, and `;`. Spans and the names of local
variables are not in it, so formatting and renaming keep the hash. The order of atoms is part of the protocol.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Final

from lash.lang.host.catalogue import HostCatalogue, ModuleInstance, Signature
from lash.lang.host.environment import HostRequirements
from lash.lang.module.names import NameTokens
from lash.lang.syntax import nodes, types
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.paths import children
from lash.lang.syntax.program import ProcessDeclaration, TypeDeclaration
from lash.lang.syntax.types import Type

_REFERENCE_VERSION: Final = "lashlang-semantic-v2"
_OWN_VERSION: Final = "lashlang-semantic-v2-py1"
"""For modules whose requirements the reference does not record, so that refs never mean two things."""


def version_tag(requirements: HostRequirements) -> str:
    """Return the first atom of every stream about a module with these requirements."""
    own = requirements.abilities.triggers or requirements.abilities.process_signals
    return _OWN_VERSION if own else _REFERENCE_VERSION


class AtomStream:
    """A stream of atoms, and its hash."""

    def __init__(self, version: str) -> None:
        self._parts: list[bytes] = []
        self.add(version)

    def add(self, *atoms: str) -> None:
        for atom in atoms:
            encoded = atom.encode()
            self._parts += (b"%d:" % len(encoded), encoded, b";")

    def count(self, number: int) -> None:
        self.add(str(number))

    def flag(self, value: bool) -> None:  # noqa: FBT001 (an atom)
        self.add("true" if value else "false")

    def content(self) -> bytes:
        return b"".join(self._parts)

    def digest(self) -> str:
        """Return the lowercase hex SHA-256 of the stream."""
        return hashlib.sha256(self.content()).hexdigest()


def add_requirements(stream: AtomStream, requirements: HostRequirements) -> None:
    """Add what a module requires of its host."""
    abilities = requirements.abilities
    stream.add("host-requirements", "abilities")
    for ability in (abilities.processes, abilities.sleep, abilities.process_signals, abilities.triggers):
        stream.flag(ability)
    if requirements.features.label_annotations:
        stream.add("language-features", "label-annotations")
    stream.add("resources")
    _add_modules(stream, requirements.resources.modules)
    _add_resource_types(stream, requirements.resources.resource_types)
    _add_other_resources(stream, requirements.resources)


def _add_modules(stream: AtomStream, modules: Mapping[str, ModuleInstance]) -> None:
    stream.add("modules", str(len(modules)))
    for key, module in sorted(modules.items()):
        stream.add(key, module.resource_type, module.alias, "operations", str(len(module.operations)))
        for operation, host_operation in sorted(module.operations.items()):
            stream.add(operation, host_operation)


def _add_resource_types(stream: AtomStream, resource_types: Mapping[str, Mapping[str, Signature]]) -> None:
    stream.count(len(resource_types))
    for name, signatures in sorted(resource_types.items()):
        stream.add(name, "operations", str(len(signatures)))
        for operation, signature in sorted(signatures.items()):
            stream.add(operation)
            add_type(stream, signature.input)
            add_type(stream, signature.output)


def _add_other_resources(stream: AtomStream, resources: HostCatalogue) -> None:
    stream.add("named-data-types", str(len(resources.data_types)))
    for name, shape in sorted(resources.data_types.items()):
        stream.add(name)
        add_type(stream, shape)
    stream.add("constructors", str(len(resources.constructors)))
    for path, constructor in sorted(resources.constructors.items()):
        stream.add(path, constructor.type_name)
        add_type(stream, constructor.input)
        add_type(stream, constructor.output)
    stream.add("trigger-sources", str(len(resources.trigger_sources)))
    for source, event in sorted(resources.trigger_sources.items()):
        stream.add(source, event)


def add_type(stream: AtomStream, kind: Type) -> None:
    match kind:
        case types.ScalarType():
            stream.add(f"type:{kind.name}")
        case types.EnumType():
            stream.add("type:enum", str(len(kind.values)), *kind.values)
        case types.ListType():
            stream.add("type:list")
            add_type(stream, kind.item)
        case types.ObjectType():
            stream.add("type:object", str(len(kind.fields)))
            for each in kind.fields:
                stream.add(each.name)
                stream.flag(each.optional)
                add_type(stream, each.type)
        case types.RefType():
            stream.add("type:ref", kind.name)
        case types.ProcessType():
            stream.add("type:process", str(kind.input_count))
            add_type(stream, kind.input)
            add_type(stream, kind.output)
        case types.TriggerHandleType():
            stream.add("type:trigger-handle")
            add_type(stream, kind.event)
        case types.UnionType():
            stream.add("type:union", str(len(kind.members)))
            for member in kind.members:
                add_type(stream, member)


def add_declaration(stream: AtomStream, declaration: TypeDeclaration | ProcessDeclaration) -> None:
    if isinstance(declaration, ProcessDeclaration):
        add_process(stream, declaration)
    else:
        stream.add("type-decl", declaration.name)
        add_type(stream, declaration.type)


def add_process(stream: AtomStream, process: ProcessDeclaration) -> None:
    """Add a process with its parameters, signals, label and body."""
    stream.add("process-decl", process.name, str(len(process.parameters)))
    for parameter in process.parameters:
        stream.add(parameter.name)
        add_type(stream, parameter.type)
    stream.add("signals", str(len(process.signals)))
    for signal in process.signals:
        stream.add(signal.name)
        add_type(stream, signal.type)
    if process.return_type is None:
        stream.add("no-return")
    else:
        stream.add("return")
        add_type(stream, process.return_type)
    if process.label is not None:
        _add_label(stream, process.label)
    add_expression(stream, process.body, NameTokens.of_process(process))


def _add_label(stream: AtomStream, label: nodes.Label) -> None:
    stream.add("label", label.title)
    stream.add(*(("no-description",) if label.description is None else ("description", label.description)))


def add_expression(stream: AtomStream, node: Expression, names: NameTokens) -> None:
    """Add a node and everything below it."""
    match node:
        case nodes.Block():
            _add_all(stream, "block", node.statements, names)
        case nodes.Labelled():
            stream.add("label-annotated")
            _add_label(stream, node.label)
            add_expression(stream, node.expression, names)
        case nodes.Null() | nodes.Break() | nodes.Continue():
            stream.add(type(node).__name__.lower())
        case nodes.Bool():
            stream.add("bool")
            stream.flag(node.value)
        case nodes.Number():
            stream.add("number", _number_bits(node.value))
        case nodes.String():
            stream.add("string", node.value)
        case nodes.Variable():
            stream.add("variable", names[node.name])
        case nodes.List():
            _add_all(stream, "list", node.items, names)
        case nodes.Record():
            stream.add("record")
            _add_entries(stream, node.entries, names)
        case nodes.ListComp() | nodes.Assign() | nodes.For():
            _add_binder(stream, node, names)
        case nodes.If():
            _add_operands(stream, "if", names, node.condition, node.then, node.otherwise)
        case nodes.While():
            _add_operands(stream, "while", names, node.condition, node.body)
        case nodes.BuiltinCall():
            stream.add("builtin-call", node.name, str(len(node.arguments)))
            _add_operands(stream, None, names, *node.arguments)
        case nodes.Field():
            _add_operands(stream, "field-access", names, node.target)
            stream.add(node.name)
        case nodes.Index():
            _add_operands(stream, "index-access", names, node.target, node.index)
        case nodes.Unary():
            stream.add("unary", node.operator)
            add_expression(stream, node.operand, names)
        case nodes.Binary():
            stream.add("binary", node.operator)
            _add_operands(stream, None, names, node.left, node.right)
        case nodes.TypeLiteral():
            stream.add("type-literal")
            add_type(stream, node.type)
        case _:
            _add_effect(stream, node, names)


_EFFECT_TAGS: Final[dict[type, str]] = {
    nodes.Await: "await",
    nodes.SleepFor: "sleep-for",
    nodes.SleepUntil: "sleep-until",
    nodes.Unwrap: "unwrap",
    nodes.Cancel: "cancel",
    nodes.Print: "print",
    nodes.Yield: "yield",
    nodes.Wake: "wake",
    nodes.Fail: "fail",
    nodes.Submit: "submit",
    nodes.Finish: "finish",
}


def _add_effect(stream: AtomStream, node: Expression, names: NameTokens) -> None:
    """Add a node that acts on the host or names a part of it."""
    match node:
        case nodes.Start():
            stream.add("start-process", node.process)
            _add_entries(stream, node.arguments, names)
        case nodes.ProcessRef():
            stream.add("process-ref", node.process)
        case nodes.HostDescriptor():
            stream.add("host-value-constructor", node.type_name)
            add_expression(stream, node.input, names)
        case nodes.ResourceRef():
            stream.add("resource-ref", "path", str(len(node.path)), *node.path)
            stream.add("handle", node.resource_type, node.alias)
        case nodes.ReceiverCall():
            _add_operands(stream, "receiver-call", names, node.receiver)
            stream.add(node.operation, str(len(node.arguments)))
            _add_operands(stream, None, names, *node.arguments)
        case nodes.WaitSignal():
            stream.add("wait-signal", node.name)
        case nodes.SignalRun():
            stream.add("signal-run", node.name)
            _add_operands(stream, None, names, node.run, node.payload)
        case nodes.Submit() | nodes.Finish():
            stream.add(_EFFECT_TAGS[type(node)], "none" if node.operand is None else "some")
            _add_operands(stream, None, names, *children(node))
        case _:
            _add_operands(stream, _EFFECT_TAGS[type(node)], names, *children(node))


def _add_binder(stream: AtomStream, node: nodes.ListComp | nodes.Assign | nodes.For, names: NameTokens) -> None:
    """Add a node that gives a value to a name."""
    match node:
        case nodes.ListComp():
            stream.add("list-comprehension", str(len(node.clauses)))
            for clause in node.clauses:
                if isinstance(clause, nodes.ForClause):
                    stream.add("for", names[clause.binding])
                    add_expression(stream, clause.iterable, names)
                else:
                    _add_operands(stream, "if", names, clause.condition)
            add_expression(stream, node.element, names)
        case nodes.Assign():
            stream.add("assign", names[node.root], str(len(node.steps)))
            for step in node.steps:
                if isinstance(step, nodes.FieldStep):
                    stream.add("field", step.name)
                else:
                    _add_operands(stream, "index", names, step.index)
            add_expression(stream, node.value, names)
        case nodes.For():
            stream.add("for", names[node.binding])
            _add_operands(stream, None, names, node.iterable, node.body)


def _add_all(stream: AtomStream, tag: str, items: tuple[Expression, ...], names: NameTokens) -> None:
    stream.add(tag, str(len(items)))
    _add_operands(stream, None, names, *items)


def _add_entries(stream: AtomStream, entries: tuple[tuple[str, Expression], ...], names: NameTokens) -> None:
    stream.count(len(entries))
    for key, value in entries:
        stream.add(key)
        add_expression(stream, value, names)


def _add_operands(stream: AtomStream, tag: str | None, names: NameTokens, *operands: Expression) -> None:
    if tag is not None:
        stream.add(tag)
    for operand in operands:
        add_expression(stream, operand, names)


def _number_bits(value: float) -> str:
    """Return the 64 bits of a double as a decimal number; both zeros are ``0``."""
    return str(struct.unpack("<Q", struct.pack("<d", value or 0.0))[0])
