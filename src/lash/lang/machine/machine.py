"""A machine: it evaluates a program in steps, and stops where its host has to do something.

It has no recursion, no coroutine and no clock: what it does next is a function of its state, which is plain data. An
effect is asked for until its answer is given, so a state may be stored at any pause and continued elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lash.errors import CorruptData
from lash.lang.machine.code import Code, Op
from lash.lang.machine.effects import Batch, Broken, Done, Effect, OutOfSteps, Pause, Site
from lash.lang.machine.frames import Frame, frame_from_json, frame_to_json, held_by, value_to_json, variables_from_json
from lash.lang.machine.limits import Limits
from lash.lang.machine.steps import STEPS
from lash.lang.values.fault import Fault, limit_error
from lash.lang.values.value import Value, weight
from lash.model.value import JSON

_VERSION: Final = 1
"""The format of a stored state."""
_TEMPORARIES: Final = 4
"""How many times the memory of variables the nodes may hold: a variable that is read counts again."""


class Machine:
    """One program with its variables and the nodes that are being evaluated."""

    def __init__(self, code: Code, variables: Mapping[str, Value], limits: Limits | None = None) -> None:
        self.code = code
        self.limits = Limits() if limits is None else limits
        self.variables: dict[str, Value] = {}
        self.frames: list[Frame] = [Frame(code.root)]
        self.effects = 0
        """How many effects have been answered."""
        self.left = 0
        """The steps that remain of the host's."""
        self._memory = 0
        self._held = 0
        self._counts: dict[str, int] = {}
        self._spent = 0
        self._pending: Effect | None = None
        for name, value in variables.items():
            self.assign(name, value)

    @classmethod
    def restore(cls, code: Code, state: JSON, limits: Limits | None = None) -> Machine:
        """Return the machine of a stored state; raise CorruptData if the state is not one of this program."""
        if not isinstance(state, dict) or state.get("version") != _VERSION:
            raise CorruptData(f"expected a machine's state of version {_VERSION}, got {state!r:.80}")
        try:
            machine = cls(code, variables_from_json(state["variables"]), limits)
            machine.frames = [frame_from_json(frame, code) for frame in state["frames"]]
            for frame in machine.frames:
                machine.hold(frame, held_by(frame))
            machine._counts = {str(site): int(count) for site, count in state["counts"].items()}
            machine.effects = int(state["effects"])
        except (KeyError, TypeError, ValueError, AttributeError, Fault) as error:
            raise CorruptData(f"a stored state cannot be read: {error!r}") from error
        return machine

    def state(self) -> JSON:
        """Return everything that the program is, as plain JSON; an effect that was asked for is asked for again."""
        return {
            "version": _VERSION,
            "variables": [[name, value_to_json(value)] for name, value in self.variables.items()],
            "frames": [frame_to_json(frame) for frame in self.frames],
            "counts": dict(self._counts),
            "effects": self.effects,
        }

    def run(self, steps: int) -> Pause:
        """Continue until the host has to do something, or the steps are used up."""
        self.left = steps
        try:
            return self._run(steps)
        except Fault as fault:
            return self.break_off(fault)

    def _run(self, steps: int) -> Pause:
        frames = self.frames
        while frames:
            if self.left <= 0:
                self._spend(steps - self.left)
                return OutOfSteps()
            self.left -= 1
            frame = frames[-1]
            pause = STEPS[type(frame.op.node)](self, frame)
            if pause is not None:
                return self._pause(pause, steps - self.left)
        return Done("end", None)

    def _pause(self, pause: Pause, used: int) -> Pause:
        if not isinstance(pause, Effect):
            return self._end(pause)
        self._spend(used)
        if self.effects >= self.limits.effects:
            raise limit_error(f"the program has used its {self.limits.effects:,} effects")
        self._pending = pause
        return pause

    def _spend(self, steps: int) -> None:
        self._spent += steps
        if self._spent > self.limits.steps:
            raise limit_error(
                f"the program ran {self.limits.steps:,} steps without an effect",
                "end the loop, or let it sleep or wait",
            )

    def answer(self, value: Value) -> None:
        """Give the answer to the effect that `run` returned."""
        self._answer([value])

    def answer_batch(self, values: Sequence[Value]) -> None:
        """Give the answers to a batch, in the order of its operations."""
        self._answer(values)

    def _answer(self, values: Sequence[Value]) -> None:
        pending, self._pending = self._pending, None
        assert pending is not None, "an answer to an effect that was not asked for"
        for site in _sites(pending):
            self._counts[site.node_id] = site.occurrence
        self.effects += 1
        self._spent = 0
        self.frames[-1].values.extend(values)
        self.hold(self.frames[-1], sum(map(weight, values)))

    def break_off(self, fault: Fault) -> Broken:
        """End the program where it is, because it or its host could not do what it asked for."""
        op = self.frames[-1].op if self.frames else self.code.root
        ended = Broken(fault, op.node.span, op.path)
        self._end(ended)
        return ended

    def site(self, node_id: str) -> Site:
        """Return the site of the next effect of a node."""
        return Site(node_id, self._counts.get(node_id, 0) + 1)

    def push(self, op: Op) -> None:
        """Evaluate a node next."""
        self.frames.append(Frame(op))

    def deliver(self, value: Value) -> None:
        """End the node on top, and give its value to the one below."""
        self._held -= self.frames.pop().held
        if self.frames:
            self.frames[-1].values.append(value)
            self.hold(self.frames[-1], weight(value))

    def take(self, frame: Frame) -> Value:
        """Remove the last value of a node and return it."""
        value = frame.values.pop()
        self.hold(frame, -weight(value))
        return value

    def trim(self, frame: Frame, kept: int) -> None:
        """Remove the values of a node behind the first few."""
        while len(frame.values) > kept:
            self.take(frame)

    def hold(self, frame: Frame, size: int) -> None:
        """Count what a node holds; raise Fault if all nodes together hold too much."""
        frame.held += size
        self._held += size
        if self._held > _TEMPORARIES * self.limits.memory_bytes:
            raise limit_error("the program computes with too many large values at once", "use fewer nested loops")

    def assign(self, name: str, value: Value) -> None:
        """Set a variable; raise Fault if all together are too large."""
        old = self.variables.get(name)
        memory = self._memory + weight(value) - (weight(old) if name in self.variables else 0)
        if memory > self.limits.memory_bytes:
            raise limit_error(f"the variables have more than {self.limits.memory_bytes:,} bytes together")
        self._memory = memory
        self.variables[name] = value

    def bind(self, name: str, value: Value) -> list[Value]:
        """Set the variable of a loop, and return its earlier value, or nothing if there was none."""
        saved = [self.variables[name]] if name in self.variables else []
        self.assign(name, value)
        return saved

    def restore_binding(self, name: str, saved: list[Value]) -> None:
        """Undo `bind` at the end of a loop."""
        self._memory -= weight(self.variables.pop(name)) if name in self.variables else 0
        if saved:
            self._memory += weight(saved[0])
            self.variables[name] = saved[0]

    def unwind(self, depth: int) -> None:
        """Drop the nodes above a depth; loops among them restore their variables."""
        while len(self.frames) > depth:
            frame = self.frames.pop()
            self._held -= frame.held
            self.leave(frame)

    def leave(self, frame: Frame) -> None:
        """Restore the variables of a loop that ends."""
        node: Any = frame.op.node
        if frame.saved is not None:
            self.restore_binding(node.binding, frame.saved)
            frame.saved = None
        for loop in reversed(frame.loops):
            self.restore_binding(node.clauses[loop.clause].binding, loop.saved)
        frame.loops.clear()

    def _end(self, pause: Pause) -> Pause:
        self.unwind(0)
        return pause


def _sites(effect: Effect) -> list[Site]:
    return [each.site for each in effect.operations] if isinstance(effect, Batch) else [effect.site]
