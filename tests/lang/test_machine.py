"""The evaluator: what programs compute, which effects they ask for, and how they end."""

from __future__ import annotations

import pytest

from lash.errors import CorruptData
from lash.lang.machine.effects import Done, Failed
from lash.lang.machine.limits import Limits
from lash.lang.machine.machine import Machine
from lash.lang.values.fault import FaultKind
from lash.lang.values.value import Resource
from tests.lang.machine_kit import Run, compiled

PROGRAMS = [
    ("submit 1 + 2 * 3", 7),
    ('submit "a" + 1 + null', "a1null"),
    ("submit not [] or 0", False),
    ("submit null and missing", False),
    ("submit 1 or missing", True),
    ("submit {a: {b: 1}}.a.c.d", None),
    ("x = 5 submit x > 3 ? x < 4 ? 1 : 2 : 3", 2),
    ("t = 0 for i in range(5) { if i == 1 { continue } if i == 4 { break } t = t + i } submit t", 5),
    ("i = 7 for i in [1, 2] { } submit i", 7),
    ("for i in [1, 2] { last = i } submit last", 2),
    ("i = 0 while i < 3 { i = i + 1 } submit i", 3),
    ("submit [a * 10 + b for a in range(3) if a > 0 for b in range(a)]", [10, 20, 21]),
    ("a = 1 b = [a for a in [2, 3]] submit push(b, a)", [2, 3, 1]),
    ("r = {} r.a = {} r.a.b = [0] r.a.b[0] = r submit r", {"a": {"b": [{"a": {"b": [0]}}]}}),
    ("x = [1, 2] y = x y[0] = 9 submit [x, y]", [[1, 2], [9, 2]]),
    ("submit {a: 1, a: 2}", {"a": 2}),
    ("type Shape = {n: int} submit validate({n: 1}, Type {inner: Shape?}).n", 1),
    ("Shape = Type {n: int} T = Type {inner: Shape} submit validate({inner: {n: 1}}, T).inner.n", 1),
    ("x = if_ ? 1 : 2 submit x", 2),
]


@pytest.mark.parametrize(("source", "value"), PROGRAMS)
@pytest.mark.parametrize("restores", [False, True])
def test_a_program_computes(source: str, value: object, restores: bool) -> None:  # noqa: FBT001 (a parameter)
    """Each program has its value, also if its state is stored and read after every third step."""
    run = Run(source, restores=restores, slice_steps=3 if restores else 1_000, if_=False)
    assert run.value == value


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("submit x", FaultKind.UNKNOWN_NAME, "`x` has no value"),
        ("x.y = 1", FaultKind.UNKNOWN_NAME, "`x` has no value"),
        ("for k in {a: 1} { }", FaultKind.LOOP, "`for` needs a list, got record"),
        ("submit [k for k in 1]", FaultKind.LOOP, "`for` needs a list, got number"),
        ("submit 1?", FaultKind.TYPE, "`?` needs a result with `ok`, got number"),
        ("submit [] - 1", FaultKind.TYPE, "`-` needs a number, got list"),
        ("x = [] while true { x = {a: x} }", FaultKind.LIMIT, "a record is nested at most 64 levels"),
    ],
)
def test_a_program_breaks(source: str, kind: FaultKind, message: str) -> None:
    """A program that does what the language does not allow ends with an error at its place."""
    run = Run(source)
    assert run.error.startswith(message)
    end = run.end
    assert getattr(end, "fault").kind is kind  # noqa: B009 (the end is broken)
    assert getattr(end, "span") is not None  # noqa: B009 (so it has a place)


def test_variables_of_loops_are_restored_at_every_exit() -> None:
    """An error, a submit and a break leave the variable of a loop as it was before; other assignments stay."""
    broken = Run("i = 1 for i in [2] { j = [k for k in [3] for i in [4] if missing] }")
    assert broken.variables == {"i": 1}
    submitted = Run("for i in [2] { done = i submit i }")
    assert submitted.variables == {"done": 2}
    left = Run("for i in [2] { for j in [3] { break } seen = i break }")
    assert left.variables == {"seen": 2}


def test_a_process_ends_with_a_value_or_a_failure() -> None:
    """`finish` and `fail` end it; at its end it has no value."""
    source = "process p(n: int) { if n > 1 { finish {n: n, all: inputs} } if n == 1 { fail {why: n} } }"
    assert Run(source, process="p", n=2, inputs={"n": 2}).value == {"n": 2, "all": {"n": 2}}
    failed = Run(source, process="p", n=1)
    assert isinstance(failed.end, Failed)
    assert failed.value == {"why": 1}
    ended = Run(source, process="p", n=0)
    assert ended.end == Done("end", None)


def test_effects_are_named_by_their_place_and_occurrence() -> None:
    """The second time at a place is its second occurrence; other places count on their own."""
    source = "process p() { for i in range(2) { sleep for 1 yield i } sleep for 2 }"
    run = Run(source, process="p")
    places = [site.rpartition(":")[0] for site in run.sites]
    assert [site.rpartition(":")[2] for site in run.sites] == ["1", "1", "2", "2", "1"]
    assert places[0] == places[2] != places[4]
    assert [place.partition(":")[0] for place in places] == [
        "sleep",
        "process_event",
        "sleep",
        "process_event",
        "sleep",
    ]


def test_an_operation_gives_a_result() -> None:
    """Without a question mark the program looks at it; with one it gets the value, or ends."""
    answers = {"web.get": lambda payload: {"ok": payload["n"] == 1, "value": "v", "error": "not found"}}
    assert Run("r = web.get({n: 2}) submit r.error", answers=answers).value == "not found"
    assert Run("submit await web.get({n: 1})?", answers=answers).value == "v"
    run = Run("submit await web.get({n: 2})?", answers=answers)
    assert run.error == "not found"
    several = Run("a = web.get(1, [2]) b = web.get() submit [a.value, b.value]")
    assert several.value == [{"args": [1, [2]]}, {}]


def test_a_batch_asks_for_its_operations_together() -> None:
    """Arguments are evaluated in the order of the source; the shape of the literal is that of its value."""
    source = """
    n = 1
    r = await {a: web.get({n: n}), list: [mail.work.send({n: 2})?, n + 1], b: web.get({n: 3})?}
    submit r
    """
    run = Run(source)
    assert run.value == {"a": {"ok": True, "value": {"n": 1}}, "list": [{"n": 2}, 2], "b": {"n": 3}}
    assert [name for name, _ in run.asked] == ["web.get", "mail.work.send", "web.get"]
    assert run.machine.effects == 1, "they are one effect"


def test_the_first_failure_of_a_batch_in_source_order_ends_the_program() -> None:
    """All operations have their answers before."""
    answers = {"web.get": lambda payload: {"ok": False, "error": f"no {payload['n']}"}}
    run = Run("r = await [web.get({n: 1}), web.get({n: 2})?, web.get({n: 3})?] submit r", answers=answers)
    assert run.error == "no 2"
    assert len(run.asked) == 3


def test_await_finds_processes_in_lists_and_records() -> None:
    """Each handle is replaced by the result of its process, one after the other; results of operations stay."""
    source = """
    process p(n: int) { finish n }
    runs = {b: start p(n: 1), a: [start p(n: 2), 5]}
    done = await runs
    both = await {h: runs.b, w: web.get({}), s: start p(n: 3), handle: 1}
    one = await runs.b?
    submit [done, both, one]
    """
    answers = {f"child-{n}": {"ok": True, "value": n} for n in (1, 2, 3)}
    run = Run(source, answers=answers)
    first, second, third = ({"ok": True, "value": n} for n in (1, 2, 3))
    assert run.value == [
        {"b": first, "a": [second, 5]},
        {"h": first, "w": {"ok": True, "value": {}}, "s": third, "handle": 1},
        1,
    ]


def test_an_operation_cannot_forge_a_handle() -> None:
    """What a tool returns is not awaited, even if it looks like a handle."""
    forged = {"ok": True, "value": {"__handle__": "process", "id": "other"}}
    run = Run("submit [await web.get({})?, await [web.get({})]]", answers={"web.get": forged})
    assert [name for name, _ in run.asked] == ["web.get", "web.get"]


def test_an_authority_parameter_is_called_by_its_module() -> None:
    """The receiver is the module that the process was given."""
    source = "process p(box: Work) { finish await box.send({n: 1})? }"
    run = Run(source, process="p", box=Resource("Work", "mail.work"))
    assert run.asked == [("mail.work.send", {"n": 1})]


_NESTED = " ".join(f"for {name} in range(9000) {{" for name in "abcdefg") + " }" * 7


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("while true { }", "the program ran 50,000 steps without an effect"),
        (_NESTED, "too many large values at once"),
        ("submit [range(1000) for x in range(9000)]", "too many large values at once"),
        ("x = {} while true { x[to_string(len(x))] = range(1000) }", "the variables have more than 100,000 bytes"),
        ("for i in range(100) { print i }", "the program has used its 20 effects"),
    ],
)
def test_a_program_has_limits(source: str, message: str) -> None:
    """A program that exceeds one ends with an error that names it."""
    run = Run(source, limits=Limits(steps=50_000, memory_bytes=100_000, effects=20), slice_steps=100)
    assert message in run.error
    assert getattr(run.end, "fault").kind is FaultKind.LIMIT  # noqa: B009 (the end is broken)


def test_large_values_cost_steps() -> None:
    """Comparing, copying and joining large values uses up the steps of a slice, so that the loop can yield."""
    module = compiled("x = range(100000) y = x == x submit y")
    machine = Machine(module.main(), {})
    pauses = 0
    while not isinstance(machine.run(1_024), Done):
        pauses += 1
    assert pauses >= 2


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"version": 2},
        {"version": 1},
        {"version": 1, "variables": [["x", [9]]], "frames": [], "counts": {}, "effects": 0},
        {"version": 1, "variables": [], "frames": [{"path": "7.7"}], "counts": {}, "effects": 0},
        {"version": 1, "variables": [], "frames": [{"at": 1}], "counts": {}, "effects": 0},
    ],
)
def test_a_state_of_another_program_is_refused(state: object) -> None:
    """A stored state that does not fit is an error about the data, not a crash."""
    with pytest.raises(CorruptData):
        Machine.restore(compiled("submit 1").main(), state)  # type: ignore[arg-type]
