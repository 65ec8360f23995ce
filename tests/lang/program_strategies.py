"""Random programs as source text, with names that have values and operations of the host."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from lash.lang.values.builtins import BUILTINS

_NAMES = ("a", "b", "c")
_TEXTS = ('""', '"x"', '"é {}"', '"1.5"', '"a,b"', '"[1]"', '"low"')
_NUMBERS = ("0", "1", "2.5", "1000000000000", "7.")
_OPERATORS = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or")


@st.composite
def expressions(draw: DrawFn, depth: int = 3) -> str:
    """Return an expression; its names have values, and its calls are of builtins and of operations."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from((*_NAMES, *_TEXTS, *_NUMBERS, "true", "false", "null", "[]", "{}", "[1, 2, 3]")))
    inner = expressions(depth - 1)
    kind = draw(st.integers(0, 11))
    first, second = f"({draw(inner)})", f"({draw(inner)})"
    match kind:
        case 0 | 1:
            return f"{first} {draw(st.sampled_from(_OPERATORS))} {second}"
        case 2:
            return f"{draw(st.sampled_from(('-', 'not ')))}{first}"
        case 3:
            return f"[{first}, {second}]"
        case 4:
            return f"{{k: {first}, a: {second}}}"
        case 5:
            return f"{first}.{draw(st.sampled_from(('k', 'a', 'ok', 'value')))}"
        case 6:
            return f"{first}[{second}]"
        case 7:
            return f"({first} ? {second} : {draw(inner)})"
        case 8:
            return draw(_builtin_calls(inner))
        case 9:
            return f"[{draw(inner)} for {draw(st.sampled_from(_NAMES))} in range(3) if {first}]"
        case 10:
            return f"await web.get({{n: {first}}})"
    return f"await {{x: web.get({{n: {first}}}), y: [web.get({{}}), {second}]}}"


@st.composite
def _builtin_calls(draw: DrawFn, inner: SearchStrategy[str]) -> str:
    builtin = BUILTINS[draw(st.sampled_from(sorted(BUILTINS)))]
    count = draw(st.integers(builtin.least, builtin.least + 2 if builtin.most is None else builtin.most))
    return f"{builtin.name}({', '.join(draw(inner) for _ in range(count))})"


@st.composite
def statements(draw: DrawFn, depth: int = 2) -> str:
    """Return a statement."""
    name, value = draw(st.sampled_from(_NAMES)), draw(expressions())
    kind = draw(st.integers(0, 7))
    body = draw(blocks(depth - 1)) if depth > 0 and kind > 3 else f"{name} = {value}"
    match kind:
        case 0 | 1:
            return f"{name} = {value}"
        case 2:
            return f"{name}{draw(st.sampled_from(('.k', '[0]', '[-1]', '.k.a')))} = {value}"
        case 3:
            return f"print {value}"
        case 4:
            return f"if {value} {{ {body} }} else {{ {name} = 1 }}"
        case 5:
            return f"for {name} in range(3) {{ {body} {draw(st.sampled_from(('', 'break', 'continue')))} }}"
        case 6:
            return f"i = 0 while i < 3 {{ i = i + 1 {body} }}"
    return f"{name} = {{}} {body} run = start p(n: {name}) {name} = await run"


@st.composite
def blocks(draw: DrawFn, depth: int = 2) -> str:
    return " ; ".join(draw(st.lists(statements(depth), min_size=1, max_size=4)))


PROGRAMS: SearchStrategy[str] = blocks().map(
    lambda body: f"process p(n: any) {{ finish n }} a = 1 b = [1, 2] c = {{k: 1}} {body} ; submit [a, b, c]"
)
