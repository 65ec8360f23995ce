"""What the grammar alone does not decide, and the errors of the parser."""

from __future__ import annotations

import pytest

from lash.lang.diagnostic import ProgramError
from lash.lang.parse import parse
from lash.lang.parse.parser import MAX_SOURCE
from lash.lang.syntax import nodes, types
from lash.lang.syntax.nodes import (
    Assign,
    Await,
    Binary,
    BuiltinCall,
    Expression,
    Field,
    If,
    Index,
    Number,
    ReceiverCall,
    Record,
    Submit,
    Unary,
    Unwrap,
    Variable,
)
from lash.lang.syntax.program import Program, TypeDeclaration

A, B, C, D = (Variable(name) for name in "abcd")
ONE, TWO, THREE = Number(1.0), Number(2.0), Number(3.0)


def statements(source: str) -> tuple[Expression, ...]:
    return parse(source).main.statements


def only(source: str) -> Expression:
    (found,) = statements(source)
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 + 2 * 3", Binary(ONE, "add", Binary(TWO, "multiply", THREE))),
        ("a - b - c", Binary(Binary(A, "subtract", B), "subtract", C)),
        ("a or b && c", Binary(A, "or", Binary(B, "and", C))),
        ("not a == b", Binary(Unary("not", A), "equal", B)),
        ("!a", Unary("not", A)),
        ("a < b < c", Binary(Binary(A, "less", B), "less", C)),
        ("-a.b", Unary("negate", Field(A, "b"))),
        ("a ? b : c ? d : 1", If(A, B, If(C, D, ONE))),
        ("a ? b ? c : d : 1", If(A, If(B, C, D), ONE)),
        ("a? ? b : c", If(Unwrap(A), B, C)),
        ("a ? b? : c", If(A, Unwrap(B), C)),
        ("a ? b.if : c", If(A, Field(B, "if"), C)),
        ("a ? sleep for b : c", If(A, nodes.SleepFor(B), C)),
        ("await a.b()?", Await(Unwrap(ReceiverCall(A, "b", ())))),
        ("(await a)?", Unwrap(Await(A))),
        ("{ if: 1, 'x y': 2, if: 3, }", Record((("if", ONE), ("x y", TWO), ("if", THREE)))),
        ("a.if.'x y'[1]", Index(Field(Field(A, "if"), "x y"), ONE)),
        ("signal_run(a, 'go', b)", nodes.SignalRun(A, "go", B)),
        ("start p(a: 1,)", nodes.Start("p", (("a", ONE),))),
        ("sleep until a + 1", nodes.SleepUntil(Binary(A, "add", ONE))),
        ("[a for a in b if c for d in a]", nodes.ListComp(
            A, (nodes.ForClause("a", B), nodes.IfClause(C), nodes.ForClause("d", A)))),
    ],
)  # fmt: skip
def test_expressions(source: str, expected: Expression) -> None:
    """Operators bind by their precedence, and `?` is what the tokens after it make of it."""
    assert only(source) == expected


@pytest.mark.parametrize("word", ["type", "start", "process", "yield", "sleep", "while", "let", "finish", "trigger"])
def test_contextual_words_can_be_assigned(word: str) -> None:
    """An assignment is recognised before the words of statements."""
    assert only(f"{word} = 1") == Assign(word, (), ONE)
    assert only(f"{word}.a[b] = 1") == Assign(word, (nodes.FieldStep("a"), nodes.IndexStep(B)), ONE)


def test_line_ends_do_not_count() -> None:
    """A parenthesis, a bracket or a minus on the next line continues the expression."""
    assert only("a = b\n(c)") == Assign("a", (), BuiltinCall("b", (C,)))
    assert only("a = 1\n-b") == Assign("a", (), Binary(ONE, "subtract", B))
    assert only("a = b\n[1]") == Assign("a", (), Index(B, ONE))


@pytest.mark.parametrize(
    "rest",
    [
        "submit ok ? 1 : 2",
        "x = ok ? 1 : 2",
        "x[0].y = ok ? 1 : 2",
        "print ok ? 1 : 2",
        "if ok ? 1 : 2 {}",
        "while ok ? 1 : 2 {}",
        "let x = ok ? 1 : 2",
        "@label(title: 'x') submit ok ? 1 : 2",
        "for x in ok ? 1 : 2 {}",
        "process p(a: str) {}",
    ],
)
def test_an_unwrap_does_not_reach_into_the_next_statement(rest: str) -> None:
    """The search for the `:` of a conditional stops where a statement begins."""
    first, second, *_ = statements(f"await a.b({{}})?\nawait c.d({{}})?\n{rest}")
    assert first == Await(Unwrap(ReceiverCall(A, "b", (Record(()),))))
    assert second == Await(Unwrap(ReceiverCall(C, "d", (Record(()),))))


def test_conditionals_are_one_node() -> None:
    """An absent else is an empty block, and `else if` is a conditional inside."""
    empty = nodes.Block()
    assert only("if a {}") == If(A, empty, empty)
    assert only("if a {} else if b {}") == If(A, empty, If(B, empty, empty))


def test_bare_ends() -> None:
    """`submit` and `finish` have no value only before a brace or the end."""
    assert only("submit") == Submit(None)
    assert statements("submit a b") == (Submit(A), B)
    (process,) = parse("process p() { if a { finish } finish }").processes
    assert process.body.statements[1] == nodes.Finish(None)


def test_declarations() -> None:
    """A process has parameters, signals, a result and a label; statements around it are the main block."""
    program = parse(
        "a = 1 type T = 'x' | null\n"
        "@label(title: 'Run', description: 'It runs')\n"
        "process p(x: str, y: list[T],) signals { s: { n: int?, } } -> number { finish 1 } submit a"
    )
    assert program.main.statements == (Assign("a", (), ONE), Submit(A))
    assert program.types == (TypeDeclaration("T", types.UnionType((types.EnumType(("x",)), types.NULL))),)
    (process,) = program.processes
    assert process.label == nodes.Label("Run", "It runs")
    assert [each.name for each in process.parameters] == ["x", "y"]
    assert process.signals[0].type == types.ObjectType((types.ObjectField("n", types.INT, optional=True),))
    assert process.return_type == types.FLOAT


@pytest.mark.parametrize(
    ("written", "meant"),
    [("string", "str"), ("integer", "int"), ("number", "float"), ("boolean", "bool"), ("object", "dict")],
)
def test_aliases_of_types(written: str, meant: str) -> None:
    """Common names of other languages mean the same types."""
    assert parse(f"type T = {written}") == parse(f"type T = {meant}")


def test_generic_types() -> None:
    """Processes and handles of triggers can be written as types."""
    (found,) = parse("type T = Process<str, TriggerHandle<clock.Tick>>").types
    assert found.type == types.ProcessType(types.STR, types.TriggerHandleType(types.RefType("clock.Tick")), 1)


ERRORS = [
    ("x = (1", "expected", "wanted `)` but saw the end of the program"),
    ("x = ", "expected", "wanted a value but saw the end of the program"),
    ("x = if a { 1 }", "unexpected", "condition ? value : other"),
    ("x = for", "unexpected", "comprehension"),
    ("call web.fetch()", "unexpected", "module path"),
    ("parallel { a }", "unexpected", "await a record or a list"),
    ("start call x()", "unexpected", "start it by its name"),
    ("x = start { a = 1 }", "unexpected", "start it by its name"),
    ("x = start (a) { b }", "unexpected", "start it by its name"),
    ("wait_signal(name)", "expected", "cannot be computed"),
    ("sleep 5", "expected", "`for` or `until`"),
    ("break", "loop-control", "`break` needs an enclosing loop"),
    ("for x in y { process }  continue", "loop-control", "`continue` needs an enclosing loop"),
    ("finish 1", "process-word", "use `submit`"),
    ("yield 1", "process-word", "use `print`"),
    ("process p() { submit 1 }", "foreground-word", "use `finish`"),
    ("process p() { if a { print 1 } }", "foreground-word", "use `yield`"),
    ("trigger daily { }", "trigger-syntax-removed", "triggers.register"),
    ("if a { process p() {} }", "unexpected", "top level"),
    ("@label(description: 'x') a", "bad-label", "the title is missing"),
    ("@label(title: 'x', title: 'y') a", "bad-label", "repeated"),
    ("@label(name: 'x') a", "bad-label", "unknown key `name`"),
    ("@label(title: x) a", "bad-label", "literal string"),
    ("@label(title: 'x' + 'y') a", "bad-label", "literal string"),
    ("@label(title: 'x') type T = str", "bad-label-target", "before a statement or a process"),
    ("@label(title: 'x') @label(title: 'y') a", "bad-label-target", "before a statement or a process"),
    ("if a { @label(title: 'x') }", "bad-label-target", "before a statement or a process"),
    ("type T = { a: str, a: int }", "duplicate-field", "field `a` is declared twice"),
    ("type T = 5", "expected", "wanted a type but saw `5`"),
    ("else {}", "unexpected", "follows the block of an `if`"),
    ("x = 1 }", "expected", "wanted a value but saw `}`"),
    ("-" * 41 + "1", "too-deep", "nested more than 40 levels"),
    ("[" * 41, "too-deep", "nested more than 40 levels"),
    ("if a { " * 41, "too-deep", "nested more than 40 levels"),
    ("a" + " + a" * 200, "too-deep", "in one chain"),
    ("x" * (MAX_SOURCE + 1), "too-long", "at most 65,536 are allowed"),
]


@pytest.mark.parametrize(("source", "kind", "text"), ERRORS, ids=[source[:30] for source, _, _ in ERRORS])
def test_errors(source: str, kind: str, text: str) -> None:
    """Each mistake has its kind, and a text that says what to do."""
    with pytest.raises(ProgramError) as caught:
        parse(source)
    assert caught.value.kind == kind
    assert text in str(caught.value)


def test_the_deepest_programs_work() -> None:
    """Nesting and chains are allowed up to their limits."""
    assert isinstance(parse("[" * 39 + "1" + "]" * 39), Program)
    assert isinstance(parse("a" + " + a" * 98), Program)
    assert isinstance(parse("if a {} " + "else if a {} " * 90), Program)


def test_look_ahead_is_linear() -> None:
    """A long program of unwraps is scanned once: every position is remembered."""
    from lash.lang.parse.cursor import Cursor
    from lash.lang.parse.lookahead import is_conditional

    cursor = Cursor("a? " * 2_000)
    cursor.position = 1
    assert not is_conditional(cursor)
    assert len(cursor.conditionals) == 3_999
