"""The errors of the linker: each has its kind, its place, and a text that a model can act on."""

from __future__ import annotations

import pytest

from lash.lang.diagnostic import ProgramError
from lash.lang.host.environment import Abilities, HostEnvironment
from tests.lang.hosts import HOST, catalogue, linked

P = "process p(t: clock.Tick, n: str) {} "
SOURCE = "source: clock.Every({ cron: 'x' })"

DOUBLED = " ".join(f"type A{n} = {{ x: A{n - 1}, y: A{n - 1} }}" for n in range(1, 40))
"""Types whose schemas double in size."""


def register(inputs: str, *, source: str = SOURCE, target: str = "p") -> str:
    return f"{P} await triggers.register({{ {source}, target: {target}, inputs: {inputs} }})"


ERRORS = [
    ("type A = str type A = int", "duplicate-declaration", "`A` is declared twice"),
    ("process a() {} process a() {}", "duplicate-declaration", "`a` is declared twice"),
    ("process a(x: str, x: str) {}", "duplicate-param", "`x` is declared twice"),
    ("process a() signals { x: str, x: str } {}", "duplicate-signal", "`x` is declared twice"),
    ("process a(x: Mial) {}", "unknown-type", "did you mean `Mail`?"),
    ("type A = { b: list[B] }", "unknown-type", "no type called `B`"),
    ("process a() { x = Type { b: B } }", "unknown-type", "no type called `B`"),
    ("type A = { a: list[B] } type B = A", "recursive-type", "type `A` contains itself"),
    (f"type A0 = int {DOUBLED}", "type-too-large", "type `A8` has more than 1,000 parts"),
    ("total = 1 process a() { finish total }", "unknown-name", "processes do not see outer variables"),
    ("process a(total: int) { finish totl }", "unknown-name", "did you mean `total`?"),
    ("process a() { x.y = 1 }", "unknown-name", "assign a value to it first"),
    ("process a() { if true { x = 1 } for y in [1] {} finish y }", "unknown-name", "`y` is not defined"),
    ("x = lenn([])", "unknown-builtin", "did you mean `len(...)`?"),
    ("process a() {} x = a()", "unknown-builtin", "start a(...)"),
    ("x = fetch({})", "bare-tool-call", "write `await web.fetch(...)`"),
    ("x = len()", "builtin-arguments", "`len` takes 1 argument, got 0"),
    ("x = find('a')", "builtin-arguments", "`find` takes 2 to 3 arguments, got 1"),
    ("x = format()", "builtin-arguments", "`format` takes at least 1 argument, got 0"),
    ("process scan() {} start scn()", "unknown-process", "did you mean `scan`?"),
    ("process a(x: str) {} start a()", "missing-argument", "`a` needs `x`"),
    ("process a(x: str) {} start a(x: 1, y: 2)", "unexpected-argument", "`a` takes no `y`"),
    ("process a(x: str) {} start a(x: 1, x: 2)", "duplicate-argument", "`x` given twice"),
    ("process a(m: Mail) {} start a(m: web)", "argument-authority", "`a.m` needs a Mail authority, got Web"),
    ("process a(m: Mail) {} x = { m: mail.work } start a(m: x.m)", "argument-authority", "got any"),
    ("process a(m: Mail) {} start a(m: true ? mail.work : mail.home)", "argument-authority", "mail.home, mail.work"),
    ("process a() -> int { finish 'x' }", "return-mismatch", "`a` promises int but can finish with str"),
    ("process a() -> int { if true { finish 1 } }", "return-mismatch", "every way through the body"),
    ("await wb.fetch({})", "unknown-module", "did you mean `web`?"),
    ("await zzz.fetch({})", "unknown-module", "the modules are disk, mail.home, mail.work, triggers, web"),
    ("process a() {} a.run()", "unknown-module", "start a(...)"),
    ("x = 'text' y = x.trim()", "unresolved-receiver", "did you mean `trim(...)`?"),
    ("[1].send()", "unresolved-receiver", "needs a module authority on its left"),
    ("web.fech({})", "unknown-operation", "did you mean `fetch`?"),
    ("process a(m: Mail) { m.burn() }", "unknown-operation", "Mail has no operation `burn`"),
    ("mail.send({})", "ambiguous-module", "did you mean `mail.home` or `mail.work`?"),
    ("process a() { finish mail }", "ambiguous-module", "did you mean `mail.home` or `mail.work`?"),
    ("web.fetch({ url: 1 })", "operation-input", "`fetch` takes { url: str }, got { url: int }"),
    ("web.fetch()", "operation-input", "got null"),
    ("disk.read('a', 'b')", "operation-input", "got list[str]"),
    ("clock.Every({ cron: 1 })", "constructor-input", "`clock.Every` takes { cron: str }"),
    ("clock.Every()", "constructor-input", "takes 1 argument, got 0"),
    ("await clock.Every({ cron: 'x' })", "awaited-value", "remove `await`"),
    ("x = clock.Every({ cron: 'x' }) y = x.cron", "opaque-access", "`clock.Schedule` values are opaque"),
    ("y = web.fetch", "opaque-access", "call an operation"),
    ("x = web y = x['a']", "opaque-access", "`Web` values are opaque"),
    ("x = wait_signal('a')", "lifecycle-outside-process", "only works in a process body"),
    ("process a() signals { go: any } { wait_signal('goo') }", "unknown-signal", "did you mean `go`?"),
    ("process a() { wait_signal('go') }", "unknown-signal", "signals { go: any }"),
    ("signal_run(x, 'a b', 1)", "unknown-signal", "cannot be the name of a signal"),
    ("await triggers.register({})", "trigger-shape", "source, target, inputs, name?"),
    ("await triggers.register(x)", "trigger-shape", "expected a record literal"),
    ("await triggers.list({ age: 1 })", "trigger-shape", "target?, name?, source_type?, enabled?"),
    ("await triggers.cancel({})", "trigger-shape", "expected a record literal with handle"),
    (register("x"), "trigger-inputs", "`inputs` must be a literal record"),
    (register("{ t: trigger.event, t: trigger.event, n: 'a' }"), "trigger-duplicate", "`t` mapped twice"),
    (register("{ t: trigger.event }"), "trigger-missing", "`n` not mapped"),
    (register("{ t: trigger.event, n: 'a', m: 1 }"), "trigger-unknown", "`p` has no `m`"),
    (register("{ t: 1, n: 'a' }"), "trigger-no-event", "map `trigger.event`"),
    ("x = trigger.event", "trigger-event-misplaced", "only inside the `inputs`"),
    (register("{ t: trigger.event.at, n: 'a' }"), "trigger-event-projected", "pass the whole event"),
    (register("{}", source="source: 'x'"), "trigger-source", "sources are clock.Schedule"),
    (register("{}", target="'p'"), "trigger-target", "target must be a process, got str"),
    (register("{ t: trigger.event, n: trigger.event }"), "trigger-event-mismatch", "source emits clock.Tick"),
]


@pytest.mark.parametrize(
    ("source", "kind", "text"), ERRORS, ids=[f"{kind}-{n}" for n, (_, kind, _) in enumerate(ERRORS)]
)
def test_errors(source: str, kind: str, text: str) -> None:
    """Each mistake has its kind, a place in the source, and a text that says what to do."""
    with pytest.raises(ProgramError) as caught:
        linked(source)
    assert caught.value.kind == kind
    assert text in str(caught.value)
    assert "--> line 1, column" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "ability"),
    [
        ("process a() {}", "processes"),
        ("sleep for 1", "sleep"),
        ("signal_run(x, 'a', 1)", "process signals"),
        ("await triggers.register({})", "triggers"),
        ("@label(title: 'x') submit 1", "label annotations"),
    ],
)
def test_abilities_are_gates(source: str, ability: str) -> None:
    """A host without an ability refuses the programs that need it."""
    with pytest.raises(ProgramError) as caught:
        linked(source, HostEnvironment(catalogue(), Abilities()))
    assert caught.value.kind == "feature-disabled"
    assert f"does not allow {ability}" in str(caught.value)


def test_declarations_come_before_the_main_block() -> None:
    """The first error is the one of a declaration, wherever it is."""
    with pytest.raises(ProgramError) as caught:
        linked("x = unknown_builtin(1) process a() { finish y }", HOST)
    assert caught.value.kind == "unknown-name"


def test_errors_point_at_the_expression() -> None:
    """The place of an error in a process is the expression, not the process."""
    with pytest.raises(ProgramError) as caught:
        linked("process a() {\n  x = 1\n  finish x + y\n}")
    assert "--> line 3, column 14\n3 |   finish x + y\n" in str(caught.value)


def test_a_type_that_doubles_is_forgotten() -> None:
    """Assignments that double the inferred type do not double the time: the type becomes unknown."""
    source = "x = 1 " + "x = { a: x, b: x } " * 60 + "if x { y = x } else { y = [x, x] } web.fetch({ url: x.zzz })"
    assert linked(source).module_ref
