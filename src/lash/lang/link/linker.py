"""Links a program against a host: the passes, in the order that decides which error is first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from lash.lang.host.environment import HostEnvironment
from lash.lang.link.body import Body, Context, Names, input_type, inputs_type
from lash.lang.link.expressions import link_expression, unknown_type
from lash.lang.link.requirements import Requirements
from lash.lang.link.statements import ends
from lash.lang.link.types import TypeScope, parts_of, references, union_of
from lash.lang.module.artifact import ModuleArtifact
from lash.lang.module.names import INPUT_NAMES
from lash.lang.module.refs import ModuleRef, ProcessReference
from lash.lang.printing.types import type_text
from lash.lang.syntax import nodes
from lash.lang.syntax.paths import walk
from lash.lang.syntax.program import Declaration, Parameter, ProcessDeclaration, Program, TypeDeclaration
from lash.lang.syntax.types import ANY, NULL, RefType, Type

_MAX_TYPE: Final = 1_000
"""Parts of a declared type: its schema has all of them, however often it names the same type."""
_MAX_TYPE_DEPTH: Final = 40
"""How many declared types may contain each other in a row."""


@dataclass(frozen=True, slots=True)
class LinkedModule:
    """A linked program; its artifact is what is stored and run."""

    artifact: ModuleArtifact

    @property
    def module_ref(self) -> ModuleRef:
        return self.artifact.module_ref

    @property
    def program(self) -> Program:
        """The linked program, with the spans of its source."""
        return self.artifact.program

    def process_ref(self, name: str) -> ProcessReference | None:
        """Return the reference of a process, or None if the module has none with this name."""
        return self.artifact.exports.get(name)


def link(
    program: Program, environment: HostEnvironment, *, source: str | None = None, variables: Iterable[str] = ()
) -> LinkedModule:
    """Resolve every name of a program against its host, or raise ProgramError at the first error.

    ``source`` is the text that the program was parsed from; errors quote it. ``variables`` are names that earlier
    cells have assigned; a variable hides a module of the host.
    """
    context = _context(program, environment, source)
    _check_labels(context, program)
    _check_declarations(context, program)
    for process in program.processes:
        _infer_output(context, process)
    declarations = tuple(_declaration(context, each) for each in program.declarations)
    main = Body(context, link_expression, Names(own=dict.fromkeys(variables, ANY)))
    block = main.node(program.main)
    assert isinstance(block, nodes.Block)
    artifact = ModuleArtifact.of(Program(declarations, block), context.requirements.collected())
    return LinkedModule(artifact)


def _context(program: Program, environment: HostEnvironment, source: str | None) -> Context:
    types = TypeScope({each.name: each.type for each in program.types}, environment.resources)
    processes = {each.name: each for each in program.processes}
    declarations = {each.name: each for each in program.types}
    return Context(environment, types, Requirements(environment.resources), processes, declarations, source)


def _check_labels(context: Context, program: Program) -> None:
    """Refuse labels anywhere if the host does not accept them."""
    for process in program.processes:
        if process.label is not None:
            _check_label(context, process)
    for body in (program.main, *(process.body for process in program.processes)):
        for _, node in walk(body):
            if isinstance(node, nodes.Labelled):
                _check_label(context, node)


def _check_label(context: Context, labelled: nodes.Labelled | ProcessDeclaration) -> None:
    context.requirements.labels = True
    if not context.environment.features.label_annotations:
        message = "this host does not allow label annotations"
        raise context.error("feature-disabled", message, labelled.span, "remove the label")


def _check_declarations(context: Context, program: Program) -> None:
    """Check names of declarations, then every type that they name."""
    _refuse_duplicates(context, "declaration", program.types)
    _refuse_duplicates(context, "declaration", program.processes)
    for process in program.processes:
        context.require("processes", process.span)
        _refuse_duplicates(context, "param", process.parameters)
        _refuse_duplicates(context, "signal", process.signals)
        if process.signals:
            context.require("process_signals", process.span)
    scope = Body(context, link_expression)
    for kind in _declared_types(program):
        for reference in references(kind):
            if not context.types.knows(reference.name):
                raise unknown_type(scope, reference)
        context.require_types(kind)
    _check_sizes(context, program)


def _refuse_duplicates(
    context: Context, what: str, found: Iterable[TypeDeclaration | ProcessDeclaration | Parameter]
) -> None:
    names: set[str] = set()
    for each in found:
        if each.name in names:
            raise context.error(f"duplicate-{what}", f"`{each.name}` is declared twice", each.span)
        names.add(each.name)


def _declared_types(program: Program) -> Iterator[Type]:
    for declaration in program.declarations:
        if isinstance(declaration, TypeDeclaration):
            yield declaration.type
        else:
            yield from (each.type for each in (*declaration.parameters, *declaration.signals))
            if declaration.return_type is not None:
                yield declaration.return_type


def _check_sizes(context: Context, program: Program) -> None:
    """Refuse a type that contains itself, or that has too many parts once its names are replaced."""
    sizes: dict[str, int] = {}
    for declaration in program.types:
        size = _size(context, declaration, (), sizes)
        if size > _MAX_TYPE:
            message = f"type `{declaration.name}` has more than {_MAX_TYPE:,} parts"
            raise context.error("type-too-large", message, declaration.span, "use `dict` or `any` for a part of it")


def _size(context: Context, declaration: TypeDeclaration, above: tuple[str, ...], sizes: dict[str, int]) -> int:
    """Return how many parts a declared type has; names stand for what they declare."""
    if declaration.name in sizes:
        return sizes[declaration.name]
    if declaration.name in above or len(above) >= _MAX_TYPE_DEPTH:
        message = f"type `{declaration.name}` contains itself"
        if declaration.name not in above:
            message = f"type `{declaration.name}` is below {_MAX_TYPE_DEPTH} other types"
        raise context.error("recursive-type", message, declaration.span, "use `dict` or `any` at that place")
    total = 0
    waiting = [declaration.type]
    while waiting:
        kind = waiting.pop()
        total += 1
        waiting.extend(parts_of(kind))
        inner = context.declarations.get(kind.name) if isinstance(kind, RefType) else None
        if inner is not None:
            total += _size(context, inner, (*above, declaration.name), sizes)
    sizes[declaration.name] = total
    return total


def _process_body(context: Context, process: ProcessDeclaration) -> Body:
    """Return a closed scope: a process sees its parameters, ``input``, ``inputs``, and what it assigns."""
    own: dict[str, Type] = dict(zip(INPUT_NAMES, (input_type(process), inputs_type(process)), strict=True))
    own.update((parameter.name, parameter.type) for parameter in process.parameters)
    return Body(context, link_expression, Names(own=own), process)


def _infer_output(context: Context, process: ProcessDeclaration) -> None:
    """Infer what a process finishes with, and check that against its annotation."""
    body = _process_body(context, process)
    body.node(process.body)
    kinds = body.finishes if ends(process.body) else [*body.finishes, NULL]
    output = union_of(kinds)
    expected = process.return_type
    if expected is not None and not context.types.assignable(output, expected, lenient=True):
        message = f"`{process.name}` promises {type_text(expected)} but can finish with {type_text(output)}"
        hint = "every way through the body needs a `finish`" if not ends(process.body) else None
        raise context.error("return-mismatch", message, expected.span, hint)
    context.outputs[process.name] = output


def _declaration(context: Context, declaration: Declaration) -> Declaration:
    if isinstance(declaration, TypeDeclaration):
        return declaration
    block = _process_body(context, declaration).node(declaration.body)
    assert isinstance(block, nodes.Block)
    return replace(declaration, body=block)
