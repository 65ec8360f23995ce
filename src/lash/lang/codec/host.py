"""The stored form of what a module requires of its host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Final, TypeVar

from lash.lang.codec.reader import fields, flag, items, refused, text
from lash.lang.codec.types import decode_object, decode_type, encode_fields, encode_type
from lash.lang.host.catalogue import HostCatalogue, ModuleInstance, Signature, ValueConstructor
from lash.lang.host.environment import Abilities, HostRequirements, LanguageFeatures
from lash.model.value import JSON

T = TypeVar("T")

_ABILITIES: Final = ("processes", "sleep", "process_signals", "triggers")
_RESOURCES: Final = ("module_instances", "resource_types", "named_data_types", "value_constructors", "trigger_sources")


def encode_requirements(requirements: HostRequirements) -> JSON:
    """Return the JSON of requirements."""
    return {
        "abilities": asdict(requirements.abilities),
        "language_features": asdict(requirements.features),
        "resources": _encode_resources(requirements.resources),
    }


def _encode_resources(resources: HostCatalogue) -> JSON:
    return {
        "module_instances": {key: _encode_module(module) for key, module in resources.modules.items()},
        "resource_types": {
            name: {operation: _encode_signature(signature) for operation, signature in signatures.items()}
            for name, signatures in resources.resource_types.items()
        },
        "named_data_types": {name: encode_fields(shape) for name, shape in resources.data_types.items()},
        "value_constructors": {
            path: {
                "path": list(each.path),
                "type_name": each.type_name,
                "input_ty": encode_type(each.input),
                "output_ty": encode_type(each.output),
            }
            for path, each in resources.constructors.items()
        },
        "trigger_sources": dict(resources.trigger_sources),
    }


def _encode_module(module: ModuleInstance) -> JSON:
    return {
        "path": list(module.path),
        "resource_type": module.resource_type,
        "alias": module.alias,
        "operations": dict(module.operations),
    }


def _encode_signature(signature: Signature) -> JSON:
    return {"input_ty": encode_type(signature.input), "output_ty": encode_type(signature.output)}


def decode_requirements(value: JSON) -> HostRequirements:
    """Read requirements, or raise CorruptData."""
    found = fields(value, ("abilities", "language_features", "resources"))
    resources = fields(found["resources"], _RESOURCES)
    return HostRequirements(
        HostCatalogue(
            _map(resources["module_instances"], _decode_module),
            _map(resources["resource_types"], lambda each: _map(each, _decode_signature)),
            _map(resources["named_data_types"], decode_object),
            _map(resources["value_constructors"], _decode_constructor),
            _map(resources["trigger_sources"], text),
        ),
        Abilities(**_flags(found["abilities"], _ABILITIES)),
        LanguageFeatures(**_flags(found["language_features"], ("label_annotations",))),
    )


def _flags(value: JSON, names: tuple[str, ...]) -> dict[str, bool]:
    found = fields(value, names)
    return {name: flag(found[name]) for name in names}


def _map(value: JSON, decode: Callable[[JSON], T]) -> dict[str, T]:
    if not isinstance(value, dict):
        raise refused("an object")
    return {key: decode(each) for key, each in value.items()}


def _path(value: JSON) -> tuple[str, ...]:
    return items(value, text, 0)


def _decode_module(value: JSON) -> ModuleInstance:
    found = fields(value, ("path", "resource_type", "alias", "operations"))
    operations = _map(found["operations"], text)
    return ModuleInstance(_path(found["path"]), text(found["resource_type"]), text(found["alias"]), operations)


def _decode_signature(value: JSON) -> Signature:
    found = fields(value, ("input_ty", "output_ty"))
    return Signature(decode_type(found["input_ty"]), decode_type(found["output_ty"]))


def _decode_constructor(value: JSON) -> ValueConstructor:
    found = fields(value, ("path", "type_name", "input_ty", "output_ty"))
    kinds = decode_type(found["input_ty"]), decode_type(found["output_ty"])
    return ValueConstructor(_path(found["path"]), text(found["type_name"]), *kinds)
