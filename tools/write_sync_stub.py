"""Write which classes `lash.sync` makes blocking, and their types; run it after changing an async class.

The former are ``lash/sync/interfaces.py``, the latter ``lash/sync/__init__.pyi``. The classes are found from the two
roots by the return annotations of their methods, from the text of the sources alone.
"""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from lash.sync.proxy import plain_text

SOURCE: Final = Path(__file__).parent.parent / "src"
STUB: Final = SOURCE / "lash" / "sync" / "__init__.pyi"
TABLE: Final = SOURCE / "lash" / "sync" / "interfaces.py"
ROOTS: Final = (("lash.runtime.app", "App"), ("lash.stores.storage", "Storage"))
_FUNCTIONS: Final = {"open": ("lash.connect.open", "open_storage"), "shared": ("lash.connect.shared", "shared")}
"""Functions that return a blocking storage, by their names in `lash.sync`."""
_PLAIN: Final = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
_STREAMS: Final = frozenset({"AsyncIterator", "AsyncIterable", "AsyncGenerator"})
_HOLDERS: Final = frozenset(
    {"list", "tuple", "dict", "set", "frozenset", "Sequence", "Mapping", "Collection", "Iterable"}
)
_LEFT_OUT: Final = frozenset({"SessionWaiter"})
"""Only the runtime uses these: their watches belong to one event loop."""
_HEADER: Final = '"""Written by ``python -m tools.write_sync_stub``; change the async classes, not this file."""'


class Module:
    """One module of the sources: its classes, functions, assignments, and where its other names come from."""

    def __init__(self, name: str) -> None:
        self.name = name
        path = SOURCE.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.functions = {
            node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self.assigned = {
            target.id: node
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self.imported = dict(_imports(tree))

    def home_of(self, name: str) -> str:
        """Return the module that a name comes from; nothing, if it is a module itself."""
        return self.imported.get(name, self.name)


class Interface(NamedTuple):
    """An async class that becomes a blocking one."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name


def interfaces() -> dict[str, Interface]:
    """Return every async class that can be reached from the roots, by its name."""
    found: dict[str, Interface] = {}
    waiting = [*ROOTS]
    while waiting:
        home, name = waiting.pop()
        if not home.startswith("lash."):
            continue
        module = Module(home)
        node = module.classes.get(name)
        if node is None or name in found or name in _LEFT_OUT or not _is_async(node):
            continue
        found[name] = Interface(module, node)
        waiting += [(module.home_of(each), each) for each in _returned_names(node)]
    return dict(sorted(found.items()))


def table() -> str:
    """Return the text of the module that maps each blocking class to its async class."""
    homes = {name: interface.module.name for name, interface in interfaces().items()}
    explanation = '"""What is made blocking, and where it comes from."""'
    return _formatted(f"{_HEADER}\n\nfrom typing import Final\n\nINTERFACES: Final = {homes!r}\n{explanation}", TABLE)


def stub() -> str:
    """Return the text of the stub."""
    return _formatted(_Writer(interfaces()).text(), STUB)


def _formatted(text: str, path: Path) -> str:
    for command in (("check", "--select", "I", "--fix", "--quiet"), ("format",)):
        program = [Path(sys.executable).parent / "ruff", *command, "--stdin-filename", path, "-"]
        text = subprocess.run(program, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603 (ours)
    return text


class _Writer:
    """Collects what the classes need while they are written."""

    def __init__(self, found: dict[str, Interface]) -> None:
        self._found = found
        self._imports: set[tuple[str, str]] = {("lash.sync.stream", "Stream as Stream")}
        self._variables: dict[str, str] = {}

    def text(self) -> str:
        bodies = [self._class(each) for each in self._found.values()]
        bodies += [self._opener(name, home, function) for name, (home, function) in _FUNCTIONS.items()]
        lines = [f"from {home} import {name}" if home else f"import {name}" for home, name in sorted(self._imports)]
        names = sorted({*self._found, *_FUNCTIONS, "Stream"})
        return "\n".join(
            [_HEADER, *lines, "", f"__all__ = {names!r}", "", *sorted(self._variables.values()), "", *bodies]
        )

    def _class(self, interface: Interface) -> str:
        node = interface.node
        bases = [ast.unparse(base) for base in node.bases if _root_name(base) == "Generic"]
        for base in node.bases:
            if _root_name(base) == "Generic":
                self._need(interface.module, base)
        head = f"class {node.name}({', '.join(bases)}):" if bases else f"class {node.name}:"
        members = [*self._attributes(interface), *self._methods(interface)]
        documentation = ast.get_docstring(node, clean=False)
        lines = [_docstring(documentation)] if documentation else []
        return "\n".join([head, *(_indent(line) for line in (*lines, *members))])

    def _attributes(self, interface: Interface) -> Iterator[str]:
        """Write the public attributes that ``__init__`` sets from its arguments."""
        init = next((each for each in _functions(interface.node) if each.name == "__init__"), None)
        if init is None:
            return
        given = {each.arg: each.annotation for each in _arguments(init)}
        for statement in init.body:
            if not isinstance(statement, ast.Assign):
                continue
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
                annotation = given[value.id] if isinstance(value, ast.Name) else None
                if annotation is None:
                    raise SystemExit(f"{interface.name}.{target.attr} is no argument with a type; make it a property")
                self._need(interface.module, annotation)
                yield f"{target.attr}: {ast.unparse(annotation)}"

    def _methods(self, interface: Interface) -> Iterator[str]:
        is_app = (interface.module.name, interface.name) == ROOTS[0]
        for module, node in _lineage(interface.module, interface.node):
            functions = _functions(node)
            overloaded = {each.name for each in functions if _is_marked(each, "overload")}
            for function in functions:
                name = _PLAIN.get(function.name, function.name)
                is_public = not name.startswith("_") or name in ("__enter__", "__exit__")
                if is_app and node is interface.node and name == "__init__":
                    yield self._app_init(module, function)
                elif is_public and (function.name not in overloaded or _is_marked(function, "overload")):
                    yield self._function(module, function, name)

    def _app_init(self, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        """Write both ways to make the blocking app: of a declared one, and with the arguments of one."""
        self._imports |= {("typing", "overload"), (module.name, "App as AsyncApp")}
        given = "@overload\ndef __init__(self, app: AsyncApp, /) -> None: ..."
        return f"{given}\n@overload\n{self._function(module, function, '__init__')}"

    def _opener(self, name: str, home: str, function: str) -> str:
        module = Module(home)
        return self._function(module, module.functions[function], name)

    def _function(self, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
        for argument in _arguments(function):
            self._need(module, argument.annotation)
        signature = _plain_defaults(function.args)
        returned = self._returned(module, function.returns)
        decorators = [f"@{mark}" for mark in ("overload", "property") if _is_marked(function, mark)]
        if "@overload" in decorators:
            self._imports.add(("typing", "overload"))
        documentation = ast.get_docstring(function, clean=False)
        body = _docstring(documentation) if documentation else "..."
        head = f"def {name}({signature}) -> {returned}:"
        return "\n".join([*decorators, head, _indent(body)])

    def _returned(self, module: Module, annotation: ast.expr | None) -> str:
        if annotation is None:
            raise SystemExit(f"{module.name}: a public function has no return annotation")
        if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
            inner = annotation.slice.elts[0] if isinstance(annotation.slice, ast.Tuple) else annotation.slice
            if annotation.value.id in _STREAMS:
                self._need(module, inner)
                return f"Stream[{ast.unparse(inner)}]"
            if annotation.value.id in ("Awaitable", "Coroutine"):
                raise SystemExit(f"{module.name}: {ast.unparse(annotation)} cannot be distinguished from a value")
            if annotation.value.id in _HOLDERS and any(each in self._found for each in _names(annotation)):
                raise SystemExit(f"{module.name}: {ast.unparse(annotation)} holds async objects; nothing unpacks them")
        self._need(module, annotation)
        return ast.unparse(annotation)

    def _need(self, module: Module, annotation: ast.expr | None) -> None:
        """Import, or copy, what an annotation names."""
        if annotation is None:
            return
        for name in _names(annotation):
            if name in self._found or name == "Stream" or hasattr(builtins, name):
                continue
            home = module.home_of(name)
            assigned = module.assigned.get(name)
            if home == module.name and assigned is not None and _is_type_variable(assigned):
                self._variable(name, assigned, module)
            else:
                self._imports.add((home, name))

    def _variable(self, name: str, assigned: ast.Assign, module: Module) -> None:
        text = ast.unparse(assigned)
        if self._variables.setdefault(name, text) != text:
            raise SystemExit(f"{module.name}: {name} is another type variable than elsewhere; give it another name")
        self._need(module, assigned.value)


def _lineage(module: Module, node: ast.ClassDef) -> Iterator[tuple[Module, ast.ClassDef]]:
    """Yield the bases of a class that are lash's own, then the class."""
    for base in node.bases:
        name = _root_name(base)
        home = module.home_of(name)
        if home.startswith("lash."):
            other = module if home == module.name else Module(home)
            if name in other.classes:
                yield from _lineage(other, other.classes[name])
    yield module, node


def _docstring(text: str) -> str:
    """Return a docstring as source."""
    return f'"""{plain_text(text)}"""'


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Return the names that a module imports, also those for type checkers only, each with its home."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield alias.asname or alias.name, node.module
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name, ""


def _functions(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def _is_async(node: ast.ClassDef) -> bool:
    return any(isinstance(each, ast.AsyncFunctionDef) for each in _functions(node))


def _returned_names(node: ast.ClassDef) -> set[str]:
    public = (each for each in _functions(node) if not each.name.startswith("_"))
    return {name for each in public if each.returns is not None for name in _alternatives(each.returns)}


def _alternatives(annotation: ast.expr) -> list[str]:
    """Return the types that a value may have, without their arguments."""
    if isinstance(annotation, ast.BinOp):
        return [*_alternatives(annotation.left), *_alternatives(annotation.right)]
    return [_root_name(annotation)]


def _names(annotation: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]


def _root_name(node: ast.expr) -> str:
    return next(iter(_names(node)), "")


def _is_marked(function: ast.FunctionDef | ast.AsyncFunctionDef, mark: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == mark for each in function.decorator_list)


def _is_type_variable(assigned: ast.Assign) -> bool:
    value = assigned.value
    return isinstance(value, ast.Call) and _root_name(value.func) in ("TypeVar", "ParamSpec")


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    given = function.args
    several = [each for each in (given.vararg, given.kwarg) if each is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *several]


def _plain_defaults(given: ast.arguments) -> str:
    """Return the arguments as source; a default that is not a plain constant is written as ``...``."""

    def plain(default: ast.expr) -> ast.expr:
        return default if isinstance(default, ast.Constant) else ast.Constant(value=...)

    return ast.unparse(
        ast.arguments(
            posonlyargs=given.posonlyargs,
            args=given.args,
            vararg=given.vararg,
            kwonlyargs=given.kwonlyargs,
            kw_defaults=[None if each is None else plain(each) for each in given.kw_defaults],
            kwarg=given.kwarg,
            defaults=[plain(each) for each in given.defaults],
        )
    )


def _indent(text: str) -> str:
    first, *rest = text.split("\n")
    inside = text.startswith('"""')
    return "\n".join([f"    {first}", *((line if inside else f"    {line}") for line in rest)])


def main() -> None:
    """Write both files."""
    STUB.write_text(stub(), encoding="utf-8")
    TABLE.write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    main()
