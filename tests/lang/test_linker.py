"""Linking: what names become, what is inferred, and what is required of the host."""

from __future__ import annotations

import pytest

from lash.errors import ConfigError
from lash.lang.host.catalogue import HostCatalogue, Signature
from lash.lang.host.environment import Abilities, HostEnvironment, full_environment
from lash.lang.link import link
from lash.lang.link.builtins import RESULTS
from lash.lang.link.types import TypeScope, union_of
from lash.lang.parse import parse
from lash.lang.printing.types import type_text
from lash.lang.syntax import nodes, types
from lash.lang.syntax.types import ANY, BOOL, DICT, FLOAT, INT, NULL, STR, EnumType, ListType, Type, UnionType
from lash.lang.values.builtins import BUILTINS
from tests.lang.hosts import ALL, HOST, catalogue, linked, record

SCOPE = TypeScope({}, catalogue())
WEB = nodes.ResourceRef(("web",), "Web", "web")


def last(source: str) -> nodes.Expression:
    return linked(source).program.main.statements[-1]


def test_a_module_path_becomes_an_authority() -> None:
    """A dotted chain that the host knows is a reference to its module."""
    assert last("x = mail.work") == nodes.Assign("x", (), nodes.ResourceRef(("mail", "work"), "Mail", "mail.work"))
    assert isinstance(last("web.fetch({ url: 'x' })"), nodes.ReceiverCall)


def test_a_variable_hides_a_module() -> None:
    """A name that the program or an earlier cell has assigned is a variable."""
    assert last("web = 1 x = web") == nodes.Assign("x", (), nodes.Variable("web"))
    earlier = link(parse("x = web"), HOST, variables=("web",)).program.main.statements[-1]
    assert earlier == nodes.Assign("x", (), nodes.Variable("web"))


def test_a_process_is_a_value() -> None:
    """The bare name of a process is a reference to its definition."""
    assert last("process p() {} x = p") == nodes.Assign("x", (), nodes.ProcessRef("p"))


def test_constructors_make_descriptors() -> None:
    """A constructor of the host becomes a node of its own."""
    argument = nodes.Record((("cron", nodes.String("x")),))
    assert last("clock.Every({ cron: 'x' })") == nodes.HostDescriptor("clock.Schedule", argument)


def test_modules_inside_an_assigned_index_are_linked() -> None:
    """The linked form of an index of an assignment is kept."""
    assert last("a = {} a[disk.read('x')?] = 1") == nodes.Assign(
        "a",
        (
            nodes.IndexStep(
                nodes.Unwrap(
                    nodes.ReceiverCall(nodes.ResourceRef(("disk",), "Disk", "disk"), "read", (nodes.String("x"),))
                )
            ),
        ),
        nodes.Number(1.0),
    )


@pytest.mark.parametrize(
    "source",
    [
        "process p() -> int { finish 1 }",
        "process p(b: any) -> str { finish 'a' + b }",
        "process p() -> str { finish format('{}', 1) }",
        "process p() -> str { finish (await web.fetch({ url: 'x' })).text }",
        "process p() -> str { finish await disk.read('x')? }",
        "process p() -> int { finish len([1]) + 2 * 3 }",
        "process p() -> float { finish 7 / 2 }",
        "process p() -> str | null { if true { finish 'a' } }",
        "process p() -> enum['a', 'b'] | str { finish 'a' }",
        "process p() -> dict { finish { a: 1 } }",
        "process p() -> int { if true { finish 1 } else { fail 'no' } }",
        "process p() -> int { finish 1 finish 'unreachable' }",
        "process p() -> list[int] { finish [1, 2] + [3] }",
        "process p() -> bool { finish not (1 < 2) }",
        "type T = { a: int, b: str? } process p() -> T { finish { a: 1 } }",
        "process p(x: clock.Tick) -> str { finish x.at }",
        "process p() signals { go: { n: int } } -> int { finish wait_signal('go').n }",
        "process p() { x = null while true { web.fetch({ url: x }) x = 'a' } }",
        "process p(a: str) { finish [input, inputs.a, a] }",
        "process p() { if true { x = 1 } else { x = 'a' } web.fetch({ url: x }) }",
        "process p(m: Mail) { n = m n.send({}) }",
        "process p(m: Mail) { finish m } start p(m: mail.home)",
        "process p() { for x in [1] { y = x } finish y }",
        "x = Type { a: T, b: clock.Tick } type T = str",
        "unknown_in_main.field",
        "cancel unknown_in_main",
    ],
)
def test_accepted(source: str) -> None:
    """These programs link: what is unknown is left to the run, what is known fits."""
    assert linked(source).module_ref


@pytest.mark.parametrize(
    ("source", "target", "strict", "lenient"),
    [
        (INT, FLOAT, True, True),
        (FLOAT, INT, False, False),
        (ANY, STR, False, True),
        (STR, ANY, True, True),
        (EnumType(("a",)), STR, True, True),
        (STR, EnumType(("a",)), False, False),
        (EnumType(("a",)), EnumType(("a", "b")), True, True),
        (EnumType(("a", "c")), EnumType(("a", "b")), False, False),
        (UnionType((INT, STR)), UnionType((STR, FLOAT)), True, True),
        (UnionType((INT, NULL)), INT, False, False),
        (ListType(INT), ListType(FLOAT), True, True),
        (record(a=INT), DICT, True, True),
        (DICT, record(a=INT), False, True),
        (record(a=INT, b=STR), record(a=FLOAT), True, True),
        (record(b=STR), record(a=FLOAT), False, False),
        (record(), types.ObjectType((types.ObjectField("a", INT, optional=True),)), True, True),
        (types.ObjectType((types.ObjectField("a", INT, optional=True),)), record(a=INT), False, False),
        (types.RefType("clock.Tick"), record(at=STR), True, True),
        (types.RefType("Mail"), types.RefType("Mail"), True, True),
        (types.RefType("Mail"), types.RefType("Web"), False, False),
        (types.ProcessType(STR, INT, 1), types.ProcessType(STR, FLOAT, 1), True, True),
        (types.ProcessType(STR, INT, 2), types.ProcessType(STR, INT, 1), False, False),
        (types.TriggerHandleType(INT), types.TriggerHandleType(FLOAT), True, True),
    ],
)
def test_assignability(source: Type, target: Type, strict: bool, lenient: bool) -> None:  # noqa: FBT001 (parameters)
    """A value fits by its known type; an unknown one fits only where the run checks it."""
    assert SCOPE.assignable(source, target) is strict
    assert SCOPE.assignable(source, target, lenient=True) is lenient


def test_unions_are_flat() -> None:
    """A union has each member once, and an unknown member makes it unknown."""
    assert union_of((INT, UnionType((STR, INT)))) == UnionType((INT, STR))
    assert union_of((INT, ANY)) == ANY
    assert union_of((BOOL, BOOL)) == BOOL
    assert union_of(()) == NULL


def test_requirements_are_what_is_used() -> None:
    """A module requires its operations under the module and under the type, and nothing else."""
    found = linked("process p(m: Mail) { m.send({}) sleep for 1 } x = web.fetch({ url: 'a' })").artifact.requirements
    assert found.abilities == Abilities(processes=True, sleep=True)
    assert {alias: dict(each.operations) for alias, each in found.resources.modules.items()} == {
        "web": {"fetch": "tool-1"}
    }
    assert {name: set(each) for name, each in found.resources.resource_types.items()} == {
        "Mail": {"send"},
        "Web": {"fetch"},
    }


def test_requirements_of_triggers() -> None:
    """Registering a trigger requires the ability, the source, its event and the constructor."""
    source = (
        "process p(t: clock.Tick) { finish t.at } "
        "await triggers.register({ source: clock.Every({ cron: 'x' }), target: p, inputs: { t: trigger.event } })"
    )
    found = linked(source)
    requirements = found.artifact.requirements
    assert requirements.abilities.triggers
    assert requirements.resources.trigger_sources == {"clock.Schedule": "clock.Tick"}
    assert set(requirements.resources.data_types) == {"clock.Tick"}
    assert set(requirements.resources.constructors) == {"clock.Every"}
    call = found.program.main.statements[0]
    assert isinstance(call, nodes.Await)
    assert isinstance(call.operand, nodes.ReceiverCall)
    assert isinstance(call.operand.arguments[0], nodes.Record)
    inputs = dict(call.operand.arguments[0].entries)["inputs"]
    assert inputs == nodes.Record((("t", nodes.Record((("$lash.trigger.event", nodes.Bool(True)),))),))


def test_declared_signals_require_the_ability() -> None:
    """A process that only declares signals requires them, and the types that they name."""
    found = linked("process p() signals { t: clock.Tick } {}").artifact.requirements
    assert found.abilities.process_signals
    assert set(found.resources.data_types) == {"clock.Tick"}


def test_a_host_satisfies_what_it_offers() -> None:
    """Extras do not matter; what is missing or different is named."""
    required = linked("x = web.fetch({ url: 'a' }) sleep for 1").artifact.requirements
    assert HOST.satisfies(required)
    assert full_environment(catalogue().with_operation("new", "op", "t")).satisfies(required)
    assert ALL.missing(required) == ("module web of type Web", "resource type Web")
    other = HostCatalogue().with_operation("web", "fetch", "tool-7", Signature(STR, STR))
    assert HostEnvironment(other).missing(required) == (
        "ability sleep",
        "operation web: fetch (defined differently)",
        "signature of Web: fetch (defined differently)",
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: catalogue().with_module("web", "Other"),
        lambda: catalogue().with_operation("web", "fetch", "tool-8"),
        lambda: catalogue().with_operation("mail.new", "send", "t", Signature(STR, STR), resource_type="Mail"),
        lambda: catalogue().with_data_type("clock.Tick", record(at=INT)),
        lambda: catalogue().with_data_type("Tick", record(at=INT)),
        lambda: catalogue().with_data_type("a.B", record(at=types.RefType("clock.Tick"))),
        lambda: catalogue().with_data_type("a.B", record(at=EnumType(("x", "x")))),
        lambda: catalogue().with_trigger_source("clock.Schedule", "a.Unknown"),
        lambda: catalogue().with_operation("web", "fetch it", "t"),
        lambda: catalogue().with_operation("we-b", "fetch", "t"),
        lambda: catalogue().with_constructor("clock.Every", "other.Type", ANY, ANY),
    ],
)
def test_conflicts_in_a_catalogue_are_refused(wrong: object) -> None:
    """One name has one definition, and names are names of the language."""
    assert callable(wrong)
    with pytest.raises(ConfigError):
        wrong()


def test_every_builtin_has_a_type() -> None:
    """The linker knows the results of exactly the builtins that exist."""
    assert RESULTS.keys() == BUILTINS.keys()


def test_texts_of_types() -> None:
    """A type in a message is written as in a program."""
    (declared,) = parse("type T = list[{ a: str?, 'b c': enum['x', 'y'] | null }] | Process<any, 'z'>").types
    assert type_text(declared.type) == 'list[{ a: str?, "b c": enum["x", "y"] | null }] | Process<any, "z">'
