"""Runs programs on a machine with a host of the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from lash.lang.host.catalogue import HostCatalogue
from lash.lang.host.environment import full_environment
from lash.lang.link import link
from lash.lang.machine import effects
from lash.lang.machine.effects import Batch, Broken, Done, Effect, Failed, OutOfSteps
from lash.lang.machine.limits import Limits
from lash.lang.machine.machine import Machine
from lash.lang.machine.outer import process_handle
from lash.lang.parse import parse
from lash.lang.process.modules import Module
from lash.lang.values.convert import from_json, to_json
from lash.lang.values.value import Resource, Value

MODULES = HostCatalogue().with_operation("web", "get", "web.get").with_operation("mail.work", "send", "mail.send")


def compiled(source: str) -> Module:
    return Module(link(parse(source), full_environment(MODULES), source=source).artifact)


class Run:
    """One program to its end: what it asked for, and how it ended."""

    def __init__(
        self,
        source: str,
        *,
        process: str | None = None,
        limits: Limits | None = None,
        answers: Mapping[str, Any] | None = None,
        slice_steps: int = 1_000,
        restores: bool = False,
        **arguments: Any,  # noqa: ANN401 (plain JSON)
    ) -> None:
        module = compiled(source)
        code = module.main() if process is None else module.code(process)
        values: dict[str, Value] = {
            name: value if isinstance(value, Resource) else from_json(value) for name, value in arguments.items()
        }
        self.machine = Machine(code, values, limits)
        self.asked: list[Any] = []
        self.sites: list[str] = []
        self._answers = dict(answers or {})
        self._steps = slice_steps
        self._restores = restores
        self._children = 0
        self.end: Done | Failed | Broken = self._run()

    @property
    def value(self) -> Any:  # noqa: ANN401 (plain JSON)
        """The value with which the program ended."""
        assert not isinstance(self.end, Broken), self.end.fault.message
        return to_json(self.end.value)

    @property
    def error(self) -> str:
        assert isinstance(self.end, Broken), self.end
        return self.end.fault.message

    @property
    def variables(self) -> dict[str, Any]:
        return {name: to_json(value) for name, value in self.machine.variables.items()}

    def _run(self) -> Done | Failed | Broken:
        while True:
            if self._restores:
                state = json.loads(json.dumps(self.machine.state()))
                self.machine = Machine.restore(self.machine.code, state, self.machine.limits)
            pause = self.machine.run(self._steps)
            if isinstance(pause, Done | Failed | Broken):
                return pause
            if isinstance(pause, OutOfSteps):
                continue
            if self._restores:
                state = json.loads(json.dumps(self.machine.state()))
                self.machine = Machine.restore(self.machine.code, state, self.machine.limits)
                assert self.machine.run(self._steps) == pause, "a restored machine asks for the same effect"
            if isinstance(pause, Batch):
                self.machine.answer_batch([self._answer(each) for each in pause.operations])
            else:
                self.machine.answer(self._answer(pause))

    def _answer(self, effect: Effect) -> Value:
        assert not isinstance(effect, Batch)
        self.sites.append(effect.site.key)
        match effect:
            case effects.Operation():
                self.asked.append((f"{effect.receiver.alias}.{effect.name}", effect.payload))
                return self._result(f"{effect.receiver.alias}.{effect.name}", effect.payload)
            case effects.Print() | effects.ProcessEvent():
                self.asked.append((type(effect).__name__, to_json(effect.value)))
                return effect.value if isinstance(effect, effects.ProcessEvent) else None
            case effects.StartProcess():
                self._children += 1
                self.asked.append((effect.process, {name: to_json(each) for name, each in effect.arguments.items()}))
                return process_handle(f"child-{self._children}")
            case effects.AwaitProcess():
                self.asked.append(("await", effect.process_id))
                return self._result(effect.process_id, None)
            case effects.WaitSignal():
                self.asked.append(("wait", effect.name))
                return from_json(self._answers.get(effect.name))
        self.asked.append((type(effect).__name__, None))
        return None

    def _result(self, name: str, payload: Any) -> Value:  # noqa: ANN401 (plain JSON)
        answer = self._answers.get(name, {"ok": True, "value": payload})
        return from_json(answer(payload) if isinstance(answer, Callable) else answer)  # type: ignore[arg-type]
