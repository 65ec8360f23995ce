"""Loaded modules: their types, their processes as values, and their bodies prepared for a machine."""

from __future__ import annotations

from typing import Final

from lash.lang.machine.code import Code, ModuleRefs
from lash.lang.module.artifact import ModuleArtifact
from lash.lang.syntax.paths import MAIN
from lash.lang.syntax.program import Parameter, ProcessDeclaration
from lash.lang.syntax.types import RefType, Type
from lash.lang.values.value import Value, make_record

PROCESS: Final = "$lash_process"
"""The field by which a record is a process definition."""


class Module:
    """A verified module, ready to run; ``source`` is its text, if it was not read from a storage."""

    def __init__(self, artifact: ModuleArtifact, source: str | None = None) -> None:
        self.artifact = artifact
        self.source = source
        self._codes: dict[str, Code] = {}
        self._refs = ModuleRefs(artifact.module_ref, self._process_values(), self.types)

    @property
    def types(self) -> dict[str, Type]:
        """The types that the module declares, and those of the host that it names."""
        declared = {each.name: each.type for each in self.artifact.program.types}
        return {**self.artifact.requirements.resources.data_types, **declared}

    def code(self, process: str) -> Code:
        """Return the body of a process."""
        found = self._codes.get(process)
        if found is None:
            declaration, reference = self.artifact.process(process), self.artifact.exports[process]
            assert declaration is not None
            found = self._codes[process] = Code(self._refs, declaration.body, str(reference))
        return found

    def main(self) -> Code:
        """Return the main block."""
        return Code(self._refs, self.artifact.program.main, MAIN)

    def authority(self, parameter: Parameter) -> str | None:
        """Return the resource type that a parameter takes an authority of, or None if it takes a value."""
        declared = parameter.type
        if not isinstance(declared, RefType) or declared.name in self.types:
            return None
        return declared.name if declared.name in self.artifact.requirements.resources.resource_types else None

    def _process_values(self) -> dict[str, Value]:
        return {each.name: self._process_value(each) for each in self.artifact.program.processes}

    def _process_value(self, process: ProcessDeclaration) -> Value:
        reference = self.artifact.exports[process.name]
        place = make_record({"component": reference.component, "pos": float(reference.position)})
        fields: dict[str, Value] = {PROCESS: True, "process_name": process.name}
        fields |= {"module_ref": str(self.artifact.module_ref), "process_ref": place}
        return make_record({**fields, "host_requirements_ref": str(self.artifact.requirements_ref)})
