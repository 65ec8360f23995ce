"""Types are prepared one at a time, and only if they are read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lash.base import shapes

_THREADS = '''
import sys
import threading
import types

from lash.base import shapes

sys.setswitchinterval(1e-6)
_HEAD = "from __future__ import annotations\\nimport msgspec\\n"
_CLASS = """
class T{number}(msgspec.Struct):
    first: int = 0
    second: str | None = None
    next: T{next} | None = None
    last: list[int] = []
"""


def chain(length):
    module = types.ModuleType("chain")
    sys.modules["chain"] = module
    text = "".join(_CLASS.format(number=each, next=(each + 1) % length) for each in range(length))
    exec(_HEAD + text, module.__dict__)
    return module


def read(shape, barrier, how):
    value = {"first": 1, "second": "x", "next": {"first": 1, "next": {"first": 2, "last": [1]}}, "last": [1, 2]}
    barrier.wait()
    for _ in range(5):
        if how == "json":
            shapes.read_json(b'{"first": 1, "next": {"next": {"last": [1]}}}', shape)
        elif how == "declared":
            shapes.convert_declared(value, shape, None)
        else:
            shapes.convert(value, shape)


for turn in range(60):
    module, barrier = chain(12), threading.Barrier(3)
    started = [
        threading.Thread(target=read, args=(getattr(module, f"T{first}"), barrier, how))
        for first, how in ((0, "json"), (0, "plain"), (1, "declared"))
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
print("read")
'''


class _Unhashable:
    """A part of an annotation that cannot be the key of a cache."""

    __hash__ = None  # type: ignore[assignment]


def test_threads_that_read_a_new_type_at_once_go_on(tmp_path: Path) -> None:
    """Three threads read types that refer to each other for the first time; without the lock the process dies."""
    program = tmp_path / "program.py"
    program.write_text(_THREADS)
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "read\n", "")


def test_a_type_that_does_not_fit_raises_what_msgspec_raises() -> None:
    """Preparing a type hides no error: neither of a value, nor of a type that msgspec cannot read."""
    with pytest.raises(msgspec.ValidationError):
        shapes.convert("text", int)
    with pytest.raises(msgspec.DecodeError):
        shapes.read_json("{", dict[str, int])
    with pytest.raises(TypeError, match="more than one"):
        shapes.convert_declared({}, tuple[int, ...] | list[int], lambda _kind, value: value)


def test_a_declared_type_need_not_be_a_key_of_a_cache() -> None:
    """An annotation with a part that has no hash can be declared."""
    from typing import Annotated

    declared = Annotated[int, _Unhashable()]
    assert shapes.convert_declared(7, declared, lambda _kind, value: value) == 7
