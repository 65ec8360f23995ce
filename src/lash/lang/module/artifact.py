"""A module as it is stored: verified when it is written, and again when it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lash.base.codec import canonical, decode
from lash.errors import CorruptData
from lash.lang.codec.host import decode_requirements, encode_requirements
from lash.lang.codec.program import decode_program, encode_program
from lash.lang.codec.reader import fields, refused, text
from lash.lang.host.environment import HostRequirements
from lash.lang.module.refs import ModuleRef, ProcessReference, RequirementsRef, exports, module_ref, requirements_ref
from lash.lang.syntax.program import ProcessDeclaration, Program
from lash.model.value import JSON


@dataclass(frozen=True, slots=True)
class ModuleArtifact:
    """A linked program with its refs. Two artifacts with the same ref differ at most in names of local variables."""

    module_ref: ModuleRef
    requirements_ref: RequirementsRef
    requirements: HostRequirements
    exports: dict[str, ProcessReference]
    program: Program

    @classmethod
    def of(cls, program: Program, requirements: HostRequirements) -> ModuleArtifact:
        """Return the artifact of a linked program."""
        return cls(
            module_ref(program, requirements),
            requirements_ref(requirements),
            requirements,
            exports(program, requirements),
            program,
        )

    def process(self, name: str) -> ProcessDeclaration | None:
        """Return a process by its name, or None."""
        return next((each for each in self.program.processes if each.name == name), None)

    def verify(self) -> None:
        """Raise CorruptData unless the refs are the hashes of the program and the requirements."""
        actual = ModuleArtifact.of(self.program, self.requirements)
        for name in ("requirements_ref", "exports", "module_ref"):
            expected, found = getattr(self, name), getattr(actual, name)
            if expected != found:
                raise CorruptData(f"{name} of a lashlang module: expected {expected}, got {found}")


def encode_artifact(artifact: ModuleArtifact) -> bytes:
    """Return the bytes of a verified artifact."""
    artifact.verify()
    return canonical(
        {
            "module_ref": artifact.module_ref,
            "host_requirements_ref": artifact.requirements_ref,
            "host_requirements": encode_requirements(artifact.requirements),
            "exports": {
                "processes": {
                    name: {"component": each.component, "pos": each.position} for name, each in artifact.exports.items()
                }
            },
            "canonical_ir": encode_program(artifact.program),
        }
    )


def decode_artifact(content: bytes) -> ModuleArtifact:
    """Read and verify an artifact, or raise CorruptData."""
    value = decode(content, dict[str, Any], "a lashlang artifact")
    required = ("module_ref", "host_requirements_ref", "host_requirements", "exports", "canonical_ir")
    found = fields(value, required, ("dependencies",))
    if found.get("dependencies"):
        raise refused("no dependencies")
    artifact = ModuleArtifact(
        ModuleRef(text(found["module_ref"])),
        RequirementsRef(text(found["host_requirements_ref"])),
        decode_requirements(found["host_requirements"]),
        _exports(found["exports"]),
        decode_program(found["canonical_ir"]),
    )
    try:
        artifact.verify()
    except UnicodeEncodeError:
        raise CorruptData("a lashlang artifact contains a lone surrogate") from None
    return artifact


def _exports(value: JSON) -> dict[str, ProcessReference]:
    processes = fields(value, ("processes",))["processes"]
    if not isinstance(processes, dict):
        raise refused("an object of processes")
    return {name: _reference(each) for name, each in processes.items()}


def _reference(value: JSON) -> ProcessReference:
    found = fields(value, ("component", "pos"))
    position = found["pos"]
    if not isinstance(position, int) or isinstance(position, bool):
        raise refused("a position")
    return ProcessReference(text(found["component"]), position)
