"""An environment that has what a program uses, for checks without its host.

Errors about names that only a host knows are not found this way; all others are.
"""

from __future__ import annotations

from collections.abc import Iterator

from lash.lang.host.catalogue import HostCatalogue
from lash.lang.host.environment import TRIGGERS, HostEnvironment, full_environment
from lash.lang.link.body import dotted_path
from lash.lang.link.types import references
from lash.lang.module.names import INPUT_NAMES, bound_names
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.lang.syntax.paths import walk
from lash.lang.syntax.program import ProcessDeclaration, Program
from lash.lang.syntax.types import ANY, ObjectType, RefType, Type

_EVENT = "host.Event"
"""The event of a source whose events no parameter names."""


def assumed_environment(program: Program) -> HostEnvironment:
    """Return an environment with all abilities and with every module, operation and type that the program names."""
    return full_environment(_Assumed(program).catalogue)


class _Assumed:
    """Collects what a program expects of its host."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._declared = {each.name for each in program.types}
        self._processes = {each.name: each for each in program.processes}
        self.catalogue = HostCatalogue()
        for kind in self._types():
            self._type(kind)
        for body, names, parameters in self._bodies():
            found = [node for _, node in walk(body)]
            # What is passed to a parameter has its type; that is known before the operations are collected.
            for node in found:
                if isinstance(node, nodes.Start) and node.process in self._processes:
                    self._passed(self._processes[node.process], node.arguments, names)
                elif isinstance(node, nodes.ReceiverCall):
                    self._register(node, names)
            for node in found:
                if isinstance(node, nodes.ReceiverCall):
                    self._call(node, names, parameters)

    def _bodies(self) -> Iterator[tuple[Expression, set[str], dict[str, Type]]]:
        """Yield each body with the names that are variables in it, and the types of its parameters."""
        for process in self._program.processes:
            parameters = {each.name: each.type for each in process.parameters}
            yield process.body, {*parameters, *INPUT_NAMES, *bound_names(process.body)}, parameters
        yield self._program.main, {*bound_names(self._program.main), *self._processes}, {}

    def _types(self) -> Iterator[Type]:
        for process in self._program.processes:
            yield from (each.type for each in (*process.parameters, *process.signals))
        yield from (each.type for each in self._program.types)

    def _type(self, kind: Type) -> None:
        """Take a dotted name for a data type, and any other unknown name for a resource type."""
        for reference in references(kind):
            if reference.name in self._declared:
                continue
            if "." in reference.name:
                self.catalogue = self.catalogue.with_data_type(reference.name, ObjectType(()))
            else:
                self._module(f"host.{reference.name}", reference.name)

    def _module(self, path: str, resource_type: str | None = None) -> None:
        known = self.catalogue.modules.get(path)
        if known is None:
            self.catalogue = self.catalogue.with_module(path, resource_type)

    def _passed(
        self, process: ProcessDeclaration, arguments: tuple[tuple[str, Expression], ...], names: set[str]
    ) -> None:
        """Take what is passed to a parameter with a resource type for a module of that type."""
        kinds = {each.name: each.type for each in process.parameters}
        for name, value in arguments:
            path, kind = dotted_path(value), kinds.get(name)
            if path is None or path[0] in names or not isinstance(kind, RefType):
                continue
            if kind.name in self.catalogue.resource_types and path[:2] != ("trigger", "event"):
                self._module(".".join(path), kind.name)

    def _register(self, node: nodes.ReceiverCall, names: set[str]) -> None:
        """Take the source of a trigger for one whose events fit the parameter that gets them."""
        argument = node.arguments[0] if len(node.arguments) == 1 else None
        if dotted_path(node.receiver) != (TRIGGERS,) or not isinstance(argument, nodes.Record):
            return
        values = dict(argument.entries)
        target, source, inputs = values.get("target"), values.get("source"), values.get("inputs")
        process = self._processes.get(target.name) if isinstance(target, nodes.Variable) else None
        if process is None or not isinstance(inputs, nodes.Record) or not isinstance(source, nodes.ReceiverCall):
            return
        self._passed(process, inputs.entries, names)
        kinds = {each.name: each.type for each in process.parameters}
        mapped = [name for name, value in inputs.entries if dotted_path(value) == ("trigger", "event")]
        kind = kinds.get(mapped[0]) if mapped else None
        event = kind.name if isinstance(kind, RefType) and kind.name in self.catalogue.data_types else _EVENT
        self._constructor(source, names, event)

    def _constructor(self, node: nodes.ReceiverCall, names: set[str], event: str) -> None:
        path = dotted_path(node.receiver)
        if path is None or path[0] in names:
            return
        name = ".".join((*path, node.operation))
        if name not in self.catalogue.constructors:
            self.catalogue = (
                self.catalogue.with_data_type(event, self.catalogue.data_types.get(event, ObjectType(())))
                .with_constructor(name, name, ANY, RefType(name))
                .with_trigger_source(name, event)
            )

    def _call(self, node: nodes.ReceiverCall, names: set[str], parameters: dict[str, Type]) -> None:
        path = dotted_path(node.receiver)
        if path is None or path == (TRIGGERS,):
            return
        if path[0] not in names:
            if ".".join((*path, node.operation)) not in self.catalogue.constructors:
                self._operation(".".join(path), node.operation)
            return
        kind = parameters.get(path[0]) if len(path) == 1 else None
        if isinstance(kind, RefType) and kind.name in self.catalogue.resource_types:
            self._operation(f"host.{kind.name}", node.operation)

    def _operation(self, path: str, operation: str) -> None:
        self.catalogue = self.catalogue.with_operation(path, operation, f"{path}.{operation}")
