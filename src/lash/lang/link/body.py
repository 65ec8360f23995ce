"""The state of linking: of a whole module, and of one body."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from lash.lang.diagnostic import Diagnostic, ProgramError
from lash.lang.host.catalogue import HostCatalogue
from lash.lang.host.environment import HostEnvironment
from lash.lang.link.requirements import Requirements
from lash.lang.link.types import TypeScope, union_of
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.program import ProcessDeclaration, TypeDeclaration
from lash.lang.syntax.span import Span
from lash.lang.syntax.types import ANY, NULL, ObjectField, ObjectType, ProcessType, Type


class Typed(NamedTuple):
    """A linked node, the type of its value, and what `?` makes of it if that is known."""

    node: Expression
    type: Type
    result: Type = ANY


@dataclass(slots=True)
class Context:
    """What is known about the module and its host."""

    environment: HostEnvironment
    types: TypeScope
    requirements: Requirements
    processes: Mapping[str, ProcessDeclaration]
    declarations: Mapping[str, TypeDeclaration]
    source: str | None
    outputs: dict[str, Type] = field(default_factory=dict)

    @property
    def catalogue(self) -> HostCatalogue:
        return self.environment.resources

    def error(self, kind: str, message: str, span: Span | None, hint: str | None = None) -> ProgramError:
        return ProgramError(Diagnostic("link", kind, message, span, hint), self.source)

    def require(self, ability: str, span: Span | None) -> None:
        """Record that the module needs an ability, or raise ProgramError if the host lacks it."""
        if not getattr(self.environment.abilities, ability):
            raise self.error("feature-disabled", f"this host does not allow {ability.replace('_', ' ')}", span)
        self.requirements.abilities.add(ability)

    def require_types(self, kind: Type) -> None:
        self.requirements.types(kind, self.types.declared)

    def process_type(self, name: str) -> ProcessType:
        process = self.processes[name]
        return ProcessType(input_type(process), self.outputs.get(name, ANY), len(process.parameters))


class Names:
    """Variables with their types. A branch has its own above those of what encloses it, so it costs no copy."""

    def __init__(self, outer: Names | None = None, own: Mapping[str, Type] | None = None) -> None:
        self.outer = outer
        self.own: dict[str, Type] = dict(own or {})

    def get(self, name: str) -> Type | None:
        names: Names | None = self
        while names is not None:
            if name in names.own:
                return names.own[name]
            names = names.outer
        return None

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __setitem__(self, name: str, kind: Type) -> None:
        self.own[name] = kind

    def __iter__(self) -> Iterator[str]:
        names: Names | None = self
        while names is not None:
            yield from names.own
            names = names.outer


@dataclass(slots=True)
class Body:
    """One body that is being linked: the names in it with their types, and what it can finish with."""

    context: Context
    lower: Callable[[Body, Expression], Typed]
    names: Names = field(default_factory=Names)
    process: ProcessDeclaration | None = None
    finishes: list[Type] = field(default_factory=list)

    def child(self) -> Body:
        """Return a body for a branch: it has names of its own, and shares the results."""
        return Body(self.context, self.lower, Names(self.names), self.process, self.finishes)

    def link(self, node: Expression) -> Typed:
        return self.lower(self, node)

    def node(self, node: Expression) -> Expression:
        """Link a node whose type does not matter."""
        return self.lower(self, node).node

    def merge(self, *branches: Body, live: Sequence[Body]) -> None:
        """Take the names of branches; a name has the type that it has in all that go on, or is unknown."""
        for name in dict.fromkeys(name for branch in branches for name in branch.names.own):
            found = [branch.names.get(name) for branch in live]
            first = found[0]
            self.names[name] = first if first is not None and all(kind == first for kind in found) else ANY

    def forget_types(self, names: Iterable[str]) -> None:
        """Make names unknown that a loop assigns: its body may run after any of the assignments."""
        for name in names:
            if name in self.names:
                self.names[name] = ANY


def input_type(process: ProcessDeclaration) -> Type:
    """Return the type of ``input``: the only parameter, null without parameters, or a record of all."""
    if not process.parameters:
        return NULL
    return process.parameters[0].type if len(process.parameters) == 1 else inputs_type(process)


def inputs_type(process: ProcessDeclaration) -> ObjectType:
    """Return the type of ``inputs``: a record of all parameters."""
    return ObjectType(tuple(ObjectField(each.name, each.type) for each in process.parameters))


def dotted_path(node: Expression) -> tuple[str, ...] | None:
    """Return the names of a chain such as ``a.b.c``, or None if the node is another expression."""
    names: list[str] = []
    while isinstance(node, nodes.Field):
        names.append(node.name)
        node = node.target
    return (node.name, *reversed(names)) if isinstance(node, nodes.Variable) else None


def without_authority(context: Context, kind: Type) -> Type:
    """Return a type as it is known inside a record, a list or a conditional: authorities are not."""
    return ANY if context.types.authority(kind) is not None else kind


def joined(context: Context, kinds: Iterable[Type]) -> Type:
    """Return the type of a value that comes from one of several places."""
    return union_of(without_authority(context, kind) for kind in kinds)


def similar(name: str, known: Iterable[str], form: str = "{}") -> str | None:
    """Return a hint with the most similar known name, or None."""
    found = get_close_matches(name, list(known), n=1)
    return f"did you mean `{form.format(found[0])}`?" if found else None
