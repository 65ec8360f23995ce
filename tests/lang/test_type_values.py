"""Types as values of a program."""

from __future__ import annotations

from lash.lang.machine.effects import Broken
from tests.lang.machine_kit import Run


def test_types_that_double_end_the_program_early() -> None:
    """A type that contains an earlier one twice, again and again, is an error after a few steps."""
    end = Run("x = Type { a: int } " + "x = Type { a: x, b: x } " * 40 + "submit 1").end
    assert isinstance(end, Broken)
    assert "too large to be part of another one" in end.fault.message
    assert int(end.path.partition(".")[0]) < 15


def test_types_are_declared_ones_first() -> None:
    """A name in a type is a declared type, and a variable only if no type has the name."""
    program = "type T = str T = Type { n: int } x = Type { a: T } submit validate({ a: 'x' }, x)"
    assert Run(program).value == {"a": "x"}
    assert Run("V = Type { n: int } submit validate({ a: { n: 1 } }, Type { a: V })").value == {"a": {"n": 1}}
