"""Mutation testing of ``plan/``: ``python -m tools.mutation``, as ``make mutation`` does.

The pure tests must kill every mutant of a module (`tools.mutants`): first the files that name the module, then all of
``tests/rules``. Each mutant runs in a forked process. A change inside a function is patched into a process that has
loaded lash and the tests; any other change is imported by a process that has loaded nothing of lash. Results are kept
in ``.mutation/``, so an interrupted run resumes. A survivor is either killed by a new test or listed in
``tests/proof/mutation/accepted.json`` with the reason why no test can distinguish it from the original.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final, NoReturn

import msgspec

from tools.mutants import Mutant, mutants, mutated

PACKAGE: Final = Path("src/lash/plan")
TESTS: Final = Path("tests/rules")
ACCEPTED: Final = Path("tests/proof/mutation/accepted.json")
_STATE: Final = Path(".mutation/results.jsonl")
_SECONDS: Final = 120
_SURVIVED: Final = 0
_KILLED: Final = 1
_BROKEN: Final = 3
_PRELOADED: Final = (
    *("pytest_asyncio", "pytest_timeout", "xdist", "hypothesis.strategies", "_hypothesis_pytestplugin"),
    *("msgspec", "apsw", "asyncpg", "jsonschema_rs", "cronsim", "backports.zstd", "isal"),
)
_ARGUMENTS: Final = (
    *("-q", "-x", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning", "-o", "timeout=0", "--noconftest"),
)


class Record(msgspec.Struct, frozen=True):
    """The verdict on a mutant, with hashes of its module and of the tests."""

    key: str
    line: int
    verdict: str
    source: str
    tests: str


def module_files(names: Sequence[str]) -> list[Path]:
    """Return the modules with these names (``plan/session/commit``, ``session/commit``), all of them for none."""
    files = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py")) if path.stem != "__init__"}
    wanted = {name.removeprefix("plan/") for name in names}
    unknown = wanted - files.keys()
    if unknown:
        raise SystemExit(f"unknown module {', '.join(sorted(unknown))} in {PACKAGE}")
    return [path for name, path in files.items() if not wanted or name in wanted]


def module_name(path: Path) -> str:
    """Return the name of a module below ``plan/``: ``session/commit``."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def test_files(module: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the test files that are named after the module, the ones that import it, and all others."""
    every = sorted(TESTS.glob("test_*.py"))
    near = [
        path
        for path in every
        if path.stem.startswith((f"test_{module.stem}", f"test_{module_name(module).replace('/', '_')}"))
    ]
    imports = [
        path
        for path in every
        if f"lash.plan.{module_name(module).replace('/', '.')} " in path.read_text(encoding="utf-8")
    ]
    beside = [path for path in imports if path not in near]
    return near, beside, [path for path in every if path not in near + beside]


def run_mutant(module: Path, mutant: Mutant, *, loaded: bool) -> str:
    """Return ``killed``, ``survived`` or ``killed by time``; ``loaded``: this process has loaded lash."""
    pid = os.fork()
    if pid == 0:
        _become(module, mutant, loaded=loaded)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == _BROKEN:
        raise SystemExit(f"no test could be run for {mutant.key}")
    if code in {-signal.SIGXCPU, -signal.SIGKILL}:
        return "killed by time"
    return "survived" if code == _SURVIVED else "killed"


class Loaded:
    """A process that has loaded lash and its pure tests, and forks a process for each mutant."""

    def __init__(self, files: Iterable[Path]) -> None:
        tests = sorted({str(path) for module in files for near in test_files(module)[:2] for path in near})
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._orders)
            os.close(self._answers)
            self._serve(orders, answers, tests)
        os.close(orders)
        os.close(answers)
        self._read = os.fdopen(self._answers, "rb")

    def run(self, module: Path, mutant: Mutant) -> str:
        os.write(self._orders, msgspec.json.encode((str(module), mutant)) + b"\n")
        answer = self._read.readline().decode().strip()
        if not answer:
            raise SystemExit(f"no test could be run for {mutant.key}")
        return answer

    def close(self) -> None:
        os.close(self._orders)
        os.waitpid(self._pid, 0)
        self._read.close()

    @staticmethod
    def _serve(orders: int, answers: int, tests: Sequence[str]) -> NoReturn:
        import pytest

        code = 1
        try:
            _silence()
            pytest.main([*_ARGUMENTS, "--collect-only", *tests])
            # The garbage collector of a child need not scan the loaded modules.
            gc.freeze()
            with os.fdopen(orders, "rb") as file:
                for line in file:
                    module, mutant = msgspec.json.decode(line, type=tuple[str, Mutant])
                    os.write(answers, run_mutant(Path(module), mutant, loaded=True).encode() + b"\n")
            code = 0
        finally:
            os._exit(code)


def _silence() -> None:
    with Path(os.devnull).open("r+b") as nothing:
        for stream in (0, 1, 2):
            os.dup2(nothing.fileno(), stream)


def _change_functions(module: Path, tree: ast.Module) -> bool:
    """Patch the functions of the loaded module with the code of the tree; False if the tree cannot be executed."""
    loaded = sys.modules[f"lash.plan.{module_name(module).replace('/', '.')}"]
    changed = ModuleType(loaded.__name__)
    changed.__file__ = loaded.__file__
    code = compile(tree, str(module), "exec")
    try:
        exec(code, changed.__dict__)  # noqa: S102 (our own module, with one thing changed)
    except Exception:  # noqa: BLE001 (whatever the changed code raises)
        return False
    for name, value in vars(changed).items():
        old = vars(loaded).get(name)
        if isinstance(value, type) and isinstance(old, type) and value.__module__ == loaded.__name__:
            for inner, method in vars(value).items():
                _change_function(vars(old).get(inner), method)
        else:
            _change_function(old, value)
    return True


def _change_function(old: object, new: object) -> None:
    old, new = _plain_function(old), _plain_function(new)
    if isinstance(old, FunctionType) and isinstance(new, FunctionType) and old.__module__ == new.__module__:
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def _plain_function(value: object) -> object:
    if isinstance(value, property):
        return value.fget
    inner = getattr(value, "__wrapped__", None) or getattr(value, "__func__", None)
    return value if inner is None else inner


def _become(module: Path, mutant: Mutant, *, loaded: bool) -> NoReturn:
    """Run the tests with the mutant in place of the module, and exit with their verdict."""
    code = _BROKEN
    try:
        _silence()
        # CPU time, not wall-clock time: on a busy machine a slow test is not an endless one.
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS + 1))
        tree = mutated(module, mutant)
        if not loaded:
            sys.meta_path.insert(0, _Finder(module, tree))
        # A module that calls its own function at import may fail there: killed, without a test.
        code = _KILLED if loaded and not _change_functions(module, tree) else _tests_say(module)
    finally:
        os._exit(code)


def _tests_say(module: Path) -> int:
    import pytest
    from hypothesis import Phase, settings

    settings.register_profile("mutation", phases=[Phase.explicit, Phase.generate], database=None)
    settings.load_profile("mutation")
    for files in test_files(module):
        if files:
            code = pytest.main([*_ARGUMENTS, *(str(path) for path in files)])
            if code != pytest.ExitCode.OK:
                # A module that cannot be imported any more (2) is killed too.
                return _KILLED if code in {1, 2} else _BROKEN
    return _SURVIVED


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, with changed code."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self._name = f"lash.plan.{module_name(path).replace('/', '.')}"
        self._path = path.resolve()
        self._tree = tree

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Loader(fullname, str(self._path), compile(self._tree, str(self._path), "exec"))
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, _fullname: str) -> CodeType:
        return self._code


class Memory:
    """Earlier results. A kill is valid while the module is unchanged; a survivor while the tests are, too."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._records: dict[tuple[str, str], Record] = {}
        if path is not None and path.exists():
            for line in path.read_bytes().splitlines():
                record = msgspec.json.decode(line, type=Record)
                self._records[record.key, record.source] = record

    def recall(self, key: str, source: str, tests: str) -> Record | None:
        record = self._records.get((key, source))
        return record if record is not None and (record.verdict != "survived" or record.tests == tests) else None

    def note(self, record: Record) -> None:
        if self._path is not None:
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")


def results(files: Sequence[Path], memory: Memory, keys: frozenset[str] | None) -> Iterator[Record]:
    """Try the mutants of the modules, or only those with these keys."""
    tests = _digest(*sorted(TESTS.glob("*.py")))
    with contextlib.closing(Loaded(files)) as server:
        for module in files:
            source = _digest(module)
            for mutant in mutants(module, f"plan/{module_name(module)}"):
                if keys is not None and mutant.key not in keys:
                    continue
                record = memory.recall(mutant.key, source, tests)
                if record is None:
                    verdict = (
                        server.run(module, mutant) if mutant.in_function else run_mutant(module, mutant, loaded=False)
                    )
                    record = Record(mutant.key, mutant.line, verdict, source, tests)
                    memory.note(record)
                yield record


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def accepted() -> dict[str, str]:
    """Return the survivors that are known, with the reason for each."""
    return msgspec.json.decode(ACCEPTED.read_bytes(), type=dict[str, str]) if ACCEPTED.exists() else {}


def _preload() -> None:
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "lash.plan" in sys.modules:
        raise SystemExit("lash is loaded already: a mutant could not take the place of its module")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description="Mutation testing of plan/.")
    parser.add_argument("modules", nargs="*", help="modules such as plan/lease; all of them by default")
    parser.add_argument("--keys", type=Path, help="a JSON list of keys: only these mutants, and nothing is kept")
    parser.add_argument("--list", action="store_true", help="only list the keys of the mutants")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants and print the survivors; 1 if there is one that is not accepted, or an unknown key."""
    options = _arguments(arguments)
    keys = None if options.keys is None else frozenset(msgspec.json.decode(options.keys.read_bytes(), type=list[str]))
    files = module_files(options.modules if keys is None else [key.partition(":")[0] for key in keys])
    everything = [mutant.key for path in files for mutant in mutants(path, f"plan/{module_name(path)}")]
    if options.list:
        print("\n".join(everything))
        return 0
    missing = sorted(set() if keys is None else keys - set(everything))
    _preload()
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp(prefix="mutation-")
    found = _watched(results(files, Memory(_STATE if keys is None else None), keys), len(keys or everything))
    known = accepted()
    survivors = [record for record in found if record.verdict == "survived"]
    new = [record for record in survivors if record.key not in known]
    for record in new:
        print(f"survived  {PACKAGE.parent}/{record.key.partition(':')[0]}.py:{record.line}\n  {record.key}")
    for key in missing:
        print(f"no such mutant  {key}")
    print(f"{len(found)} mutants, {len(found) - len(survivors)} killed, {len(survivors) - len(new)} survivors accepted")
    return 1 if new or missing else 0


def _watched(records: Iterator[Record], total: int) -> list[Record]:
    found: list[Record] = []
    for record in records:
        found.append(record)
        if sys.stderr.isatty() or len(found) % 100 == 0:
            survived = sum(each.verdict == "survived" for each in found)
            filled = "#" * (30 * len(found) // total)
            print(f"\r[{filled:30}] {len(found)}/{total}, {survived} survived", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main())
