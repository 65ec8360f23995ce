"""Facades that import their names when the first one is used."""

from collections.abc import Callable
from importlib import import_module


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package that exports what its module ``names`` imports.

    Modules of the package can be imported one by one without paying for all the others.
    """

    def load() -> dict[str, object]:
        found = vars(import_module(f"{package}.names"))
        return {name: value for name, value in found.items() if not name.startswith("_")}

    def get_name(name: str) -> object:
        # Python asks for dunder names, such as __path__, of its own accord while it imports the package.
        names = {} if name.startswith("_") else load()
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return names[name]

    return get_name, lambda: sorted(load())
