"""The pages of the public values and of all public names."""

from __future__ import annotations

import ast
import enum
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from types import GenericAlias, ModuleType, UnionType
from typing import Final, NewType, get_args

import msgspec

import lash

_MODEL: Final = ("lash.model.", "lash.base.compression")
_FACADES: Final = {
    "lash": "What most programs need.",
    "lash.model": "Every value: what stores take and return.",
    "lash.stores": "Every Protocol: what a storage and its stores offer on both backends.",
}
_ELSEWHERE: Final = (
    "Every error is in `lash.errors` ([errors](errors.md)), every blocking class in `lash.sync` "
    "([blocking use](sync.md)). Other modules are internal and may change in any release."
)


def values_page() -> str:
    """Return the public values, module by module: structs with their fields, enumerations with their members."""
    parts = [
        "# Values",
        "The frozen values that stores take and return. All of them can be imported from `lash.model`.",
    ]
    by_module: dict[str, list[type]] = {}
    public = public_names(lash.model)
    for value in public.values():
        if isinstance(value, type):
            by_module.setdefault(value.__module__, []).append(value)
    for module_name, found in sorted(by_module.items()):
        module = sys.modules[module_name]
        noun = module_name.removeprefix("lash.model.").removeprefix("lash.base.").rpartition(".")[2]
        parts += [f"## {noun.capitalize()} {{#of-{noun}}}", inspect.getdoc(module) or ""]
        notes = attribute_notes(module)
        for kind in sorted(found, key=lambda each: inspect.getsourcelines(each)[1]):
            parts += _value(kind, notes)
    parts.append("## Names of types")
    for name, value in public.items():
        if _is_alias(value):
            parts += [f"### {name}", _alias_text(value)]
    return "\n\n".join(part for part in parts if part) + "\n"


def names_page() -> str:
    """Return every public name, with a summary and a link to its explanation."""
    rows = ["# Names", "", _ELSEWHERE]
    for facade, about in _FACADES.items():
        rows += ["", f"## {facade}", "", about, "", "| name | summary |", "|---|---|"]
        for name, value in public_names(import_module(facade)).items():
            text = _alias_text(value) if _is_alias(value) else (inspect.getdoc(value) or "").partition("\n\n")[0]
            rows.append(f"| {_link(name, value)} | {' '.join(text.split())} |")
    return "\n".join(rows) + "\n"


def public_names(module: ModuleType) -> dict[str, object]:
    """Return what a facade exports, by name, without modules."""
    found = {name: getattr(module, name) for name in sorted(dir(module), key=str.lower) if not name.startswith("_")}
    return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}


def _link(name: str, value: object) -> str:
    module = str(getattr(value, "__module__", ""))
    if name == "EVENT":
        return "[`EVENT`][lash.runtime.trigger.EVENT]"
    if module == "lash.errors":
        return f"[`{name}`](errors.md#{name.lower()})"
    if module.startswith(_MODEL) or _is_alias(value):
        return f"[`{name}`](values.md#{name.lower()})"
    return f"[`{name}`][{module}.{getattr(value, '__name__', name)}]"


def _is_alias(value: object) -> bool:
    return isinstance(value, NewType | UnionType | GenericAlias)


def _alias_text(value: object) -> str:
    if isinstance(value, NewType):
        return f"A distinct type of `{value.__supertype__.__name__}`."
    if isinstance(value, GenericAlias):
        return f"A {_code(value.__origin__.__name__)}."
    return "One of " + ", ".join(_code(each.__name__) for each in get_args(value)) + "."


def attribute_notes(module: ModuleType) -> dict[tuple[str, str], str]:
    """Return the texts that stand right below attributes in the source, by class and attribute."""
    notes: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            for before, after in zip(node.body, node.body[1:], strict=False):
                text = _text(after)
                if text is not None:
                    notes |= {(node.name, name): text for name in _names(before)}
    return notes


def _value(kind: type, notes: dict[tuple[str, str], str]) -> Iterator[str]:
    yield f"### {kind.__name__}"
    if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("):
        yield inspect.cleandoc(kind.__doc__)
    if issubclass(kind, enum.Enum):
        members = [f"- `{kind.__name__}.{each.name}` {notes.get((kind.__name__, each.name), '')}" for each in kind]
        yield "\n".join(line.rstrip() for line in members)
    elif issubclass(kind, msgspec.Struct):
        yield _fields(kind, notes)


def _fields(kind: type[msgspec.Struct], notes: dict[tuple[str, str], str]) -> str:
    annotations: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        annotations |= {name: str(text) for name, text in inspect.get_annotations(base).items()}
    rows = ["| field | type | default |", "|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        shown = annotations[field.name].replace("|", "\\|")
        note = notes.get((kind.__name__, field.name))
        rows.append(f"| `{field.name}` | {_code(shown)} | {_default(field)} |")
        if note is not None:
            rows[-1] = f"| `{field.name}`: {' '.join(note.split())} | {_code(shown)} | {_default(field)} |"
    return "\n".join(rows) if len(rows) > len(("head", "rule")) else ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    return _code(f"{field.default!r}".replace("|", "\\|"))


def _code(text: str) -> str:
    return f"`{text}`"


def _text(node: ast.stmt) -> str | None:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return inspect.cleandoc(ast.literal_eval(node.value)) if is_text and isinstance(node, ast.Expr) else None


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []
