"""The refs of a module: of itself, of its processes, and of what it requires."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

from lash.lang.host.environment import HostRequirements
from lash.lang.module.hashing import (
    AtomStream,
    add_declaration,
    add_expression,
    add_process,
    add_requirements,
    version_tag,
)
from lash.lang.module.names import NameTokens
from lash.lang.syntax.program import ProcessDeclaration, Program

ModuleRef = NewType("ModuleRef", str)
"""The identity of a module: ``lashlang:v1:sha256:`` and 64 hex digits."""
RequirementsRef = NewType("RequirementsRef", str)
"""The identity of a module's requirements."""

_MODULE: Final = "lashlang:v1:sha256:"
_REQUIREMENTS: Final = "lashlang-host-requirements:v1:sha256:"


@dataclass(frozen=True, slots=True, order=True)
class ProcessReference:
    """A process of a module: the hash of its definition, and its position among the module's processes."""

    component: str
    position: int

    def __str__(self) -> str:
        return f"{self.component}:{self.position}"


def requirements_ref(requirements: HostRequirements) -> RequirementsRef:
    stream = AtomStream(version_tag(requirements))
    add_requirements(stream, requirements)
    return RequirementsRef(_REQUIREMENTS + stream.digest())


def process_component(process: ProcessDeclaration, requirements: HostRequirements) -> str:
    """Return the hash of a process's definition, in hex."""
    stream = AtomStream(version_tag(requirements))
    stream.add("process")
    add_process(stream, process)
    return stream.digest()


def exports(program: Program, requirements: HostRequirements) -> dict[str, ProcessReference]:
    """Return the reference of each process by its name, in source order."""
    return {
        process.name: ProcessReference(process_component(process, requirements), position)
        for position, process in enumerate(program.processes)
    }


def module_ref(program: Program, requirements: HostRequirements) -> ModuleRef:
    """Return the ref of a linked program."""
    stream = AtomStream(version_tag(requirements))
    stream.add("module", requirements_ref(requirements))
    exported = exports(program, requirements)
    stream.add("exports", str(len(exported)))
    for name, reference in sorted(exported.items()):
        stream.add("process-export", name, reference.component, str(reference.position))
    stream.add("program", str(len(program.declarations)))
    for declaration in program.declarations:
        add_declaration(stream, declaration)
    add_expression(stream, program.main, NameTokens((), program.main))
    return ModuleRef(_MODULE + stream.digest())
