"""Judges records that many processes increment by compare-and-set: each is one register, and no increment is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.proof.contention.history import CountAct, Operation, State
from tests.proof.contention.register import Call, first_impossible
from tests.proof.contention.verdict import Law, Stored, Violation


def judge_counters(history: Sequence[Operation], stored: Stored) -> Iterator[Violation]:
    """Return each record whose answers, or whose stored version or value, no order of the increments explains."""
    made: defaultdict[str, list[tuple[CountAct, Call[int]]]] = defaultdict(list)
    for operation in history:
        if isinstance(operation.act, CountAct) and (
            operation.state is not State.FAIL or operation.act.actual is not None
        ):
            made[operation.act.record].append((operation.act, _call(operation, operation.act)))
    after_all = max((operation.end or operation.start for operation in history), default=0) + 1
    for record, each in sorted(made.items()):
        version, value = stored.counters.get(record, (0, 0))
        last = Call[int](after_all, after_all + 1, lambda state, version=version: (state,) if state == version else ())  # type: ignore[misc]
        number = first_impossible([*(call for _, call in each), last], 0)
        if number is not None:
            what = f"the answer to {each[number][0]}" if number < len(each) else f"the stored version {version}"
            yield Violation(Law.COUNTER, record, f"no order explains {what}")
        if value != version:
            yield Violation(Law.COUNTER, record, f"version {version} counts {value}: an increment was lost")


def _call(operation: Operation, act: CountAct) -> Call[int]:
    def step(version: int) -> tuple[int, ...]:
        if act.actual is not None:
            return (version,) if version == act.actual != act.expected else ()
        return (version + 1,) if version == act.expected else ()

    return Call(operation.start, operation.end, step)
