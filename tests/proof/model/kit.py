"""The base of all machines: two backends in lock-step, a model beside them, and a count of what was reached.

A machine is a Hypothesis ``RuleBasedStateMachine``. Its steps are methods marked with ``action``, which call ``step``
with an operation, run on both backends, and with the prediction of the model. The two results must be equal except
for generated ids, and equal the prediction. An operation class is ``name:ok`` or ``name:ErrorClass``, or what an action
counts itself with ``count``. A run that never reached a class that its machine lists fails.

``LASH_MODEL_EXAMPLES=n`` runs n examples of every machine from random seeds; a failure prints the ``LASH_MODEL_SEED``
that repeats it. A failure is shrunk, which can take minutes; ``LASH_MODEL_SHRINK=0`` shows it as
it was found.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, ParamSpec, TypeVar, cast

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.proof.model.names import symbol_number
from tests.proof.model.rows import Dump
from tests.proof.model.world import HANDS, Answer, Refusal, Side, World

P = ParamSpec("P")
T = TypeVar("T")

_SHORT_SEED = 20_240_229
_ROUND = 9
"""How many examples are drawn from one seed. From the tenth on, Hypothesis builds more and more of them from parts of
others, which finds less here than new ones do."""
_PATIENCE = 3
"""How many times as long a run takes at most, before a class that it has not reached fails it."""


_RANDOM: Final = frozenset({("lash_session_wakes", "wake_id")})
"""Columns that each database fills with its own values."""


class Refused(Exception):
    """The model's prediction where a store must raise: the name of the error class, and fields it must carry."""

    def __init__(self, kind: str, **facts: object) -> None:
        super().__init__(kind, facts)
        self.kind = kind
        self.facts = facts


@dataclasses.dataclass(frozen=True)
class Action:
    """The weight of an action, when it is possible, and what its arguments are drawn from."""

    weight: int
    when: Callable[[Any], object] | None
    arguments: dict[str, st.SearchStrategy[Any]]

    @functools.cached_property
    def values(self) -> st.SearchStrategy[tuple[Any, ...]]:
        """The arguments at once; not as st.fixed_dictionaries, which draws the order of the keys as well."""
        return st.tuples(*self.arguments.values())


def action(
    weight: int = 2, *, when: Callable[[Any], object] | None = None, **arguments: st.SearchStrategy[Any]
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Mark a method of a machine as one of its steps.

    Instead of ``rule``, whose choice leaves most rules out of most examples: a queue without a lease tests nothing.
    """

    def mark(method: Callable[P, None]) -> Callable[P, None]:
        vars(method)["action"] = Action(weight, when, arguments)
        return method

    return mark


class Call:
    """One step: an action and what was drawn for it."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self.name = name
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


@st.composite
def _calls(draw: st.DrawFn, machine: Machine) -> Call:
    name = draw(_any_of(tuple(machine.possible())))
    each = machine.ACTIONS[name]
    return Call(name, dict(zip(each.arguments, draw(each.values), strict=True)))


@functools.cache
def _any_of(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(names)


class Machine(RuleBasedStateMachine):
    """The base of all machines."""

    ACTIONS: ClassVar[dict[str, Action]] = {}
    """The actions by their names."""

    CLASSES: ClassVar[frozenset[str]] = frozenset()
    """Every operation class that a run must reach."""
    LEFT_OUT: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    """Columns, by table and name, in which the databases differ: hashes of generated ids."""
    WEIGHTS: ClassVar[dict[str, int]] = {}
    """Weights of actions in this machine, where they differ from the default."""
    REOPENS: ClassVar[tuple[int, ...]] = (0, 0, 0, 0, 1)
    """How often an example may close and open its storages, which is slow; one of these is drawn."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        found = {name: getattr(getattr(cls, name), "action", None) for name in dir(cls) if name != "TestCase"}
        cls.ACTIONS = {name: each for name, each in found.items() if isinstance(each, Action)}

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.touched = ""
        """The id that the last action concerned, so that invariants check that and not everything."""
        self._reopens = 0
        self._names_before = 0
        world.begin()

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def step(
        self, name: str, operation: Callable[[Side], Awaitable[T]], model: Callable[[T | None], object]
    ) -> T | None:
        """Run one operation on both backends, compare it with the model, and return the result; None for a refusal.

        The model is called with the result, from which it may take ids that it cannot know, or with None if the
        operation was refused; it returns the result it expects, or raises `Refused`.
        """
        self._names_before = self.world.sides[0].names.count
        outcome, *others = self.world.both(operation)
        for side, other in zip(self.world.sides[1:], others, strict=True):
            assert other == outcome, (
                f"{name}: {self.world.sides[0].backend} and {side.backend} differ\n  {outcome}\n  {other}"
            )
        value = cast("T", outcome.value) if isinstance(outcome, Answer) else None
        try:
            expected = model(value)
        except Refused as refused:
            _require_refusal(name, outcome, refused)
            self.count(f"{name}:{refused.kind}")
            return None
        assert isinstance(outcome, Answer), f"{name}: the model accepts this; it was refused: {outcome}"
        assert outcome.value == expected, f"{name}: the model says otherwise\n  {outcome.value}\n  {expected}"
        self.count(f"{name}:ok")
        return value

    def look(self, name: str, operation: Callable[[Side], Awaitable[T]], expected: object) -> None:
        """Read on both backends, and compare the result with the model."""
        self.step(name, operation, lambda _: expected)

    def is_new(self, symbol: str) -> bool:
        """Return whether an id appeared for the first time in the last result."""
        return symbol_number(symbol) >= self._names_before

    def count(self, reached: str) -> None:
        """Count a reached class of operations."""
        self.world.reached[reached] += 1

    def possible(self) -> list[str]:
        """Return the actions that are possible now, each as often as its weight."""
        chosen = ((name, each) for name, each in self.ACTIONS.items() if each.when is None or each.when(self))
        # First the cheapest: every round begins with an example of nothing else.
        return ["use_other_storage", *(name for name, each in chosen for _ in range(self.weigh(name, each)))]

    def weigh(self, name: str, each: Action) -> int:
        """Return the weight of the action in this machine."""
        return self.WEIGHTS.get(name, each.weight)

    @initialize(reopens=st.data())
    def start(self, reopens: st.DataObject) -> None:
        self._reopens = reopens.draw(st.sampled_from(self.REOPENS), label="reopens")
        self.prepare()

    def prepare(self) -> None:
        """Run the start of every example; nothing unless a machine overrides it."""

    @rule(step=st.data())
    def act(self, step: st.DataObject) -> None:
        call = step.draw(_calls(self), label="")
        self.touched = ""
        getattr(self, call.name)(**call.arguments)

    @action(1, hand=st.integers(0, HANDS - 1))
    def use_other_storage(self, hand: int) -> None:
        self.world.use_hand(hand)
        self.count("other storage")

    @action(when=lambda self: self._reopens > 0)
    def reopen(self) -> None:
        self._reopens -= 1
        self.world.reopen()
        self.reopened()
        self.count("reopen")

    def reopened(self) -> None:
        """Drop from the model what storages cache only while they are open."""

    def teardown(self) -> None:
        """Compare the rows, unless the example has failed already."""
        if sys.exc_info()[0] is None:
            self.compare_rows()

    def compare_rows(self) -> Dump:
        """Assert that both databases hold the same rows, and return them."""
        first, *others = self.world.dumps(self.LEFT_OUT | _RANDOM)
        for side, other in zip(self.world.sides[1:], others, strict=True):
            for table in sorted(first.keys() | other.keys()):
                assert other.get(table) == first.get(table), (
                    f"{table}: the rows of {self.world.sides[0].backend} and {side.backend} differ"
                )
        return first


def run_machine(machine: type[Machine], world: World, *, examples: int, steps: int) -> None:
    """Run a machine for this many examples of this many steps, or as the environment says, and check what was reached.

    A run that has not reached everything goes on for some rounds: another release of Hypothesis draws other examples.
    """
    wanted = os.environ.get("LASH_MODEL_EXAMPLES")
    first = int(os.environ.get("LASH_MODEL_SEED", random.getrandbits(32) if wanted else _SHORT_SEED))
    rounds = -(-int(wanted or examples) // _ROUND)
    for number in range(first, first + rounds * _PATIENCE):
        if number >= first + rounds and not _starved(machine, world):
            break
        try:
            _run_round(machine, world, number, steps)
        except Exception as error:
            error.add_note(f"repeat it with LASH_MODEL_SEED={number} LASH_MODEL_EXAMPLES={_ROUND}")
            raise
    report(machine, world)
    assert not _starved(machine, world), (
        f"alphabet starvation: {machine.__name__} never reached {_starved(machine, world)}"
    )


def _starved(machine: type[Machine], world: World) -> list[str]:
    """Return the classes that a run should have reached and did not."""
    return sorted(machine.CLASSES - world.reached.keys())


def _run_round(machine: type[Machine], world: World, number: int, steps: int) -> None:
    shrinks = os.environ.get("LASH_MODEL_SHRINK") != "0"
    run_state_machine_as_test(
        cast("type[RuleBasedStateMachine]", seed(number)(lambda: machine(world))),
        settings=settings(
            max_examples=_ROUND,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink] if shrinks else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def report(machine: type[Machine], world: World) -> None:
    """Print the number of operations and how often each class was reached; pytest shows it with -s or on failure."""
    print(f"{machine.__name__}: {world.example} examples, {world.steps} operations on each side")  # noqa: T201
    for name, times in sorted(world.reached.items()):
        print(f"  {name}: {times}")  # noqa: T201


def _require_refusal(name: str, outcome: Answer | Refusal, refused: Refused) -> None:
    assert isinstance(outcome, Refusal), f"{name}: the model refuses with {refused}; the answer was {outcome}"
    assert outcome.kind == refused.kind, f"{name}: the model refuses with {refused}; it was {outcome}"
    found = {fact: outcome.facts.get(fact) for fact in refused.facts}
    assert found == refused.facts, f"{name}: the model refuses with {refused}; it was {outcome}"
