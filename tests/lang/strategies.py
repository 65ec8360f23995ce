"""Generates syntax trees that the parser can make."""

from __future__ import annotations

from hypothesis import strategies as st

from lash.lang.parse.tokens import CONTEXTUAL_WORDS, KEYWORDS
from lash.lang.syntax import nodes, types
from lash.lang.syntax.program import Parameter, ProcessDeclaration, Program, TypeDeclaration

ORDINARY = ("a", "b", "x1", "_under", "Value", "mail", "r", "R")
# `sleep` cannot be read as a variable.
WORDS = tuple(word for word in CONTEXTUAL_WORDS if word != "sleep")
BUILTINS = ("len", "format", "trim")

names = st.sampled_from(ORDINARY)
variables = st.sampled_from((*ORDINARY, *WORDS))
keys = st.one_of(st.sampled_from((*ORDINARY, *KEYWORDS, *CONTEXTUAL_WORDS)), st.text(max_size=4))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.floats(min_value=0, allow_nan=False, allow_infinity=False).map(abs)

_scalars = st.sampled_from((types.ANY, types.STR, types.INT, types.FLOAT, types.BOOL, types.DICT, types.NULL))
_enums = st.lists(texts, min_size=1, max_size=3).map(lambda values: types.EnumType(tuple(values)))
_references = st.sampled_from(("Mail", "Thing", "clock.Tick", "a.b.c")).map(types.RefType)


def object_types(inner: st.SearchStrategy[types.Type]) -> st.SearchStrategy[types.ObjectType]:
    fields = st.builds(types.ObjectField, keys, inner, st.booleans())
    return st.lists(fields, max_size=3, unique_by=lambda field: field.name).map(
        lambda found: types.ObjectType(tuple(found))
    )


def _unions(inner: st.SearchStrategy[types.Type]) -> st.SearchStrategy[types.Type]:
    single = inner.filter(lambda kind: not isinstance(kind, types.UnionType))
    return st.lists(single, min_size=2, max_size=3).map(lambda members: types.UnionType(tuple(members)))


all_types: st.SearchStrategy[types.Type] = st.recursive(
    st.one_of(_scalars, _enums, _references),
    lambda inner: st.one_of(
        inner.map(types.ListType),
        object_types(inner),
        _unions(inner),
        st.builds(types.ProcessType, inner, inner),
        inner.map(types.TriggerHandleType),
    ),
    max_leaves=4,
)

_leaves: st.SearchStrategy[nodes.Expression] = st.one_of(
    st.builds(nodes.Null),
    st.builds(nodes.Bool, st.booleans()),
    st.builds(nodes.Number, numbers),
    st.builds(nodes.String, texts),
    st.builds(nodes.Variable, variables),
    st.builds(nodes.WaitSignal, texts),
    st.builds(nodes.TypeLiteral, object_types(all_types)),
)


def _compound(inner: st.SearchStrategy[nodes.Expression]) -> st.SearchStrategy[nodes.Expression]:
    several = st.lists(inner, max_size=3).map(tuple)
    entries = st.lists(st.tuples(keys, inner), max_size=3).map(tuple)
    clauses = st.one_of(st.builds(nodes.ForClause, names, inner), st.builds(nodes.IfClause, inner))
    comprehended = st.tuples(st.builds(nodes.ForClause, names, inner), st.lists(clauses, max_size=2)).map(
        lambda found: (found[0], *found[1])
    )
    return st.one_of(
        st.builds(nodes.List, several),
        st.builds(nodes.ListComp, inner, comprehended),
        st.builds(nodes.Record, entries),
        st.builds(nodes.Start, names, entries),
        st.builds(nodes.ReceiverCall, inner, keys, several),
        st.builds(nodes.BuiltinCall, st.sampled_from(BUILTINS), several),
        st.builds(nodes.SignalRun, inner, texts, inner),
        st.builds(nodes.If, inner, inner, inner),
        st.builds(nodes.Field, inner, keys),
        st.builds(nodes.Index, inner, inner),
        st.builds(nodes.Unary, st.sampled_from(("negate", "not")), inner),
        st.builds(nodes.Binary, inner, st.sampled_from(("add", "subtract", "divide", "equal", "and", "or")), inner),
        *(st.builds(make, inner) for make in (nodes.Await, nodes.Unwrap, nodes.SleepFor, nodes.SleepUntil)),
    )


expressions = st.recursive(_leaves, _compound, max_leaves=8)
labels = st.builds(nodes.Label, texts, st.none() | texts)


def _assignments() -> st.SearchStrategy[nodes.Expression]:
    step = st.one_of(st.builds(nodes.FieldStep, keys), st.builds(nodes.IndexStep, expressions))
    return st.builds(nodes.Assign, variables, st.lists(step, max_size=2).map(tuple), expressions)


def _blocks(inner: st.SearchStrategy[nodes.Expression]) -> st.SearchStrategy[nodes.Block]:
    labelled = st.builds(nodes.Labelled, labels, inner)
    return st.lists(st.one_of(inner, labelled), max_size=3).map(lambda found: nodes.Block(tuple(found)))


def _nested(inner: st.SearchStrategy[nodes.Expression]) -> st.SearchStrategy[nodes.Expression]:
    blocks = _blocks(inner)
    conditional = st.builds(nodes.If, expressions, blocks, blocks)
    return st.one_of(
        conditional,
        st.builds(nodes.If, expressions, blocks, conditional),
        st.builds(nodes.For, names, expressions, _looped(blocks)),
        st.builds(nodes.While, expressions, _looped(blocks)),
    )


def _looped(blocks: st.SearchStrategy[nodes.Block]) -> st.SearchStrategy[nodes.Block]:
    """Add a statement that only loops have."""
    ending: st.SearchStrategy[nodes.Expression | None] = st.sampled_from((None, nodes.Break(), nodes.Continue()))
    return st.builds(lambda block, end: nodes.Block((*block.statements, *((end,) if end else ()))), blocks, ending)


def bodies(*only_here: st.SearchStrategy[nodes.Expression]) -> st.SearchStrategy[nodes.Block]:
    simple = st.one_of(expressions, _assignments(), st.builds(nodes.Cancel, expressions), *only_here)
    return _blocks(st.recursive(simple, _nested, max_leaves=4))


foreground = bodies(st.builds(nodes.Submit, expressions), st.builds(nodes.Print, expressions))
process_bodies = bodies(
    st.builds(nodes.Yield, expressions),
    st.builds(nodes.Wake, expressions),
    st.builds(nodes.Finish, expressions),
    st.builds(nodes.Fail, expressions),
)
_parameters = st.lists(st.builds(Parameter, variables, all_types), max_size=3).map(tuple)
processes = st.builds(
    ProcessDeclaration, variables, _parameters, process_bodies, _parameters, st.none() | all_types, st.none() | labels
)
declarations = st.one_of(processes, st.builds(TypeDeclaration, variables, all_types))
programs = st.builds(Program, st.lists(declarations, max_size=2).map(tuple), foreground)
