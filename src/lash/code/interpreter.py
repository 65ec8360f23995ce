"""One run of a program: what it asks of its sandbox's host becomes steps, pauses and waits of a run of lash."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lash.agents.tools import NOT_THE_TOOLS, Tool
from lash.code.limits import CodeLimits
from lash.code.sandbox import SandboxCrashed, Sandboxes, host_policy, sandbox_version
from lash.code.stubs import ASK
from lash.code.values import plain
from lash.errors import EffectMismatch, InvalidInput, StepFailed
from lash.model.value import JSON, JSONObject
from lash.model.wait import Question
from lash.runtime.errors import ProgramFailed, error_code, error_text
from lash.runtime.steps.values import result_type, to_json
from lash.runtime.steps.waits import Waits

if TYPE_CHECKING:
    from pydantic_monty import (
        AsyncFunctionSnapshot,
        AsyncFutureSnapshot,
        AsyncSnapshot,
        ExternalSettledResult,
        MontyError,
    )

VERSION: Final = "sandbox"
"""The step that records the version of the sandbox."""
_LONGEST_PAUSE_S: Final = 10 * 366 * 86_400.0
_SCHEMA_LEVELS: Final = 12
"""How deep the schema of an answer may be nested: alternatives in alternatives take exponential time to check."""
_TRACE_CHARS: Final = 4_000
_RAISED: Final = frozenset(
    {
        *("ArithmeticError", "AssertionError", "AttributeError", "FileNotFoundError", "ImportError", "IndexError"),
        *("KeyError", "LookupError", "NameError", "NotImplementedError", "OSError", "OverflowError"),
        *("PermissionError", "RecursionError", "RuntimeError", "TimeoutError", "TypeError", "ValueError"),
        "ZeroDivisionError",
    }
)
"""Errors of functions that a program gets under their own names; others are RuntimeErrors that name them."""
_LIMIT_ERRORS: Final = (
    "TimeoutError: turn time limit exceeded",
    "MemoryError: memory limit exceeded",
    "RecursionError: maximum recursion depth exceeded",
    "RuntimeError: suspension limit ",
)
"""The beginnings of the errors with which the sandbox ends a program at a limit."""


class SandboxChanged(EffectMismatch):
    """A program does something else under another version of the sandbox than its records say."""

    def __init__(self, recorded: str, installed: str, difference: str) -> None:
        super().__init__("program", VERSION, path="version", recorded=recorded, given=installed)
        advice = "run it on a worker that has the former, or rerun the process from its beginning"
        text = f"The records were made with pydantic-monty {recorded}, and this worker has {installed}"
        self.args = (f"{difference}. {text}: {advice}",)


class Call(NamedTuple):
    """A function that the program calls, with the arguments as the sandbox passes them."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Interpreter:
    """Runs one program. The same source makes the same calls in every run, so its records are replayed."""

    def __init__(
        self,
        run: Waits,
        tools: Mapping[str, Tool],
        limits: CodeLimits,
        sandboxes: Sandboxes,
        show: Callable[[str], None],
    ) -> None:
        self._run = run
        self._tools = tools
        self._limits = limits
        self._sandboxes = sandboxes
        self._show = show
        self._asked = 0
        self._printed = 0
        self._pending: dict[int, Call] = {}

    async def execute(self, source: str, inputs: Mapping[str, JSON]) -> JSON:
        """Run the source to its end and return its last value; raise ProgramFailed if it fails."""
        recorded: str = await self._run.step(VERSION, _installed)
        installed = sandbox_version()
        if recorded == installed:
            return await self._interpret(source, inputs)
        try:
            result = await self._interpret(source, inputs)
        except EffectMismatch as mismatch:
            raise SandboxChanged(recorded, installed, str(mismatch)) from mismatch
        except ProgramFailed as failed:
            if self._run.is_replaying:
                raise SandboxChanged(recorded, installed, f"the program fails: {failed}") from failed
            raise
        if self._run.is_replaying:
            raise SandboxChanged(recorded, installed, "the program ends before its records do")
        return result

    async def _interpret(self, source: str, inputs: Mapping[str, JSON]) -> JSON:
        from pydantic_monty import MontyComplete, MontyCrashedError, MontyError

        # The seed is the same in every run.
        policy = host_policy(self._run.uuid().hex)
        try:
            async with self._sandboxes.session(self._limits, os_policy=policy, print_flush_interval=0) as session:
                at = await session.feed_start(source, inputs=dict(inputs), print_callback=self._print)
                while not isinstance(at, MontyComplete):
                    at = await self._next(at)
                output = at.output
        except MontyCrashedError as crashed:
            if crashed.timed_out:
                raise ProgramFailed("program_limit", "the program computed too long between two calls") from None
            raise SandboxCrashed(f"the sandbox of the program died: {crashed}") from crashed
        except MontyError as error:
            raise _failure(error) from None
        try:
            return plain(output, "the result of the program")
        except TypeError as error:
            raise ProgramFailed("program_result_invalid", str(error)) from None

    async def _next(self, at: AsyncSnapshot) -> AsyncSnapshot:
        """Answer what the program waits for, and return where it waits next."""
        from pydantic_monty import AsyncFunctionSnapshot, AsyncFutureSnapshot, AsyncNameLookupSnapshot

        if isinstance(at, AsyncFutureSnapshot):
            return await self._settle(at)
        if isinstance(at, AsyncNameLookupSnapshot):
            known = at.variable_name in self._tools or at.variable_name == ASK
            return await at.resume(value=_reference(at.variable_name)) if known else await at.resume()
        assert isinstance(at, AsyncFunctionSnapshot)
        return await self._call(at)

    async def _call(self, at: AsyncFunctionSnapshot) -> AsyncSnapshot:
        call = Call(at.function_name, at.args, at.kwargs)
        if at.is_os_function and call.name not in _HOST_CALLS:
            # Files, the environment, modules that it does not have: the sandbox raises its own error.
            return await at.resume_not_handled()
        if call.name in _ASYNC_CALLS or _is_async(self._tools.get(call.name)):
            self._pending[at.call_id] = call
            return await at.resume({"future": ...})
        return await at.resume(await self._answer(call))

    async def _settle(self, at: AsyncFutureSnapshot) -> AsyncSnapshot:
        """Make the calls that all tasks of the program wait for, side by side."""
        # In the order of the calls; that of the sandbox differs from run to run.
        ids = sorted(at.pending_call_ids)
        calls = [self._pending.pop(each) for each in ids]
        answers = await self._run.gather(*(self._answer(call) for call in calls))
        return await at.resume(dict(zip(ids, answers, strict=True)))

    async def _answer(self, call: Call) -> ExternalSettledResult:
        """Do what the program asks for, once; it gets the result, or the error as an exception of its own."""
        try:
            host = _HOST_CALLS.get(call.name)
            if host is not None:
                return {"return_value": await host(self, call)}
            if call.name == ASK:
                return {"return_value": await self._ask(*call.args, **call.kwargs)}
            tool = self._tools.get(call.name)
            if tool is None:
                return {"exc_type": "NameError", "message": f"name {call.name!r} is not defined"}
            return {"return_value": await self._step(tool, call)}
        except NOT_THE_TOOLS:
            raise
        except StepFailed as failed:
            return _raised(failed.code, failed.message)
        except Exception as error:  # noqa: BLE001 (what a function raises is the program's to handle)
            return _raised(error_code(error), error_text(error))

    async def _step(self, tool: Tool, call: Call) -> JSON:
        arguments = _by_name(tool, call)
        given = _read(tool, arguments)
        if tool.needs_approval:
            await self._approve(tool, arguments)
        declared = result_type(tool.function)

        async def body(**_arguments: JSON):  # type: ignore[no-untyped-def]  # noqa: ANN202 (a declared type would be read back)
            return to_json(await tool.call(given), declared, f"the result of {tool.name!r}")

        steps = self._run.options(once=tool.once, retry=tool.retry, timeout_s=tool.timeout_s)
        result: JSON = await steps.step(tool.name, body, **arguments)
        return result

    async def _approve(self, tool: Tool, arguments: JSONObject) -> None:
        """Wait until a person has permitted a call; raise PermissionError if it is denied."""
        question = Question(
            text=f"May the program call {tool.name}?",
            schema={"type": "boolean"},
            details={"tool": tool.name, "arguments": arguments},
        )
        name = self._wait_name(f"approve_{tool.name}")
        if not await self._run.wait(name, timeout_s=tool.approval_timeout_s, ask=question):
            raise PermissionError(f"the call of {tool.name} was denied")

    async def _ask(self, question: object, schema: object = None, timeout_s: object = None) -> JSON:
        """Wait for the answer of a person."""
        if not isinstance(question, str) or not (schema is None or isinstance(schema, dict)):
            raise TypeError(f"{ASK} takes a question as text, and a JSON schema as a dict")
        if timeout_s is not None and not isinstance(timeout_s, int | float):
            raise TypeError(f"{ASK}: timeout_s is a number of seconds")
        wanted = plain(schema, "the schema", levels=_SCHEMA_LEVELS)
        ask = Question(text=question, schema=wanted if isinstance(wanted, dict) else None)
        answer: JSON = await self._run.wait(self._wait_name(ASK), timeout_s=timeout_s, ask=ask)
        return answer

    def _wait_name(self, name: str) -> str:
        """Return a name for the next wait, the same in every run: programs make their calls in one order."""
        self._asked += 1
        return f"{name}-{self._asked}"

    async def sleep(self, call: Call) -> None:
        seconds = float(call.args[0])
        if not 0 <= seconds <= _LONGEST_PAUSE_S:
            raise ValueError(f"expected a pause from 0 to {_LONGEST_PAUSE_S:.0f} seconds, got {seconds}")
        await self._run.sleep(seconds)

    async def time(self, _call: Call) -> float:
        return (await self._run.now()).timestamp()

    async def now(self, call: Call) -> datetime:
        moment = await self._run.now()
        zone = call.args[0] if call.args else None
        return moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)

    async def today(self, _call: Call) -> object:
        return (await self._run.now()).date()

    def _print(self, _stream: str, text: str) -> None:
        """Show what the program prints, up to the limit."""
        left = self._limits.printed_chars - self._printed
        self._printed += len(text)
        if left > 0:
            self._show(text if len(text) <= left else f"{text[:left]}\n[more was printed]\n")


_HOST_CALLS: Final = {
    "time.sleep": Interpreter.sleep,
    "asyncio.sleep": Interpreter.sleep,
    "time.time": Interpreter.time,
    "datetime.now": Interpreter.now,
    "date.today": Interpreter.today,
}
"""What a program may ask of the machine that it runs on."""
_ASYNC_CALLS: Final = frozenset({"asyncio.sleep"})


async def _installed() -> str:
    return sandbox_version()


def _is_async(tool: Tool | None) -> bool:
    return tool is not None and inspect.iscoroutinefunction(tool.function)


def _reference(name: str) -> Callable[..., None]:
    """Return what stands for a function of the host when a program passes it on by its name."""

    def reference() -> None: ...

    reference.__name__ = reference.__qualname__ = name
    return reference


def _by_name(tool: Tool, call: Call) -> JSONObject:
    """Return the arguments of a call by name, as JSON; raise TypeError if they do not fit."""
    names = list(tool.spec.parameters.get("properties", {}))
    if len(call.args) > len(names):
        raise TypeError(f"{tool.name}() takes {len(names)} arguments, and got {len(call.args)}")
    given = dict(zip(names, call.args, strict=False))
    twice = sorted(set(given) & set(call.kwargs))
    if twice:
        raise TypeError(f"{tool.name}() got two values for argument {twice[0]!r}")
    merged = {**given, **call.kwargs}
    return {name: plain(value, f"argument {name!r} of {tool.name}()") for name, value in merged.items()}


def _read(tool: Tool, arguments: JSONObject) -> dict[str, object]:
    try:
        return tool.read(msgspec.json.encode(arguments).decode())
    except InvalidInput as error:
        raise TypeError(f"{tool.name}(): {error}") from None


def _raised(code: str, message: str) -> ExternalSettledResult:
    if code == "KeyError":
        # Its text is the representation of the key, which the sandbox makes again.
        message = message.strip("'")
    if code in _RAISED:
        return {"exc_type": code, "message": message}  # type: ignore[typeddict-item]
    return {"exc_type": "RuntimeError", "message": f"{code}: {message}"}


def _failure(error: MontyError) -> ProgramFailed:
    """Return the end of a program that raised an error, with its place in the source."""
    from pydantic_monty import MontyRuntimeError, MontySyntaxError

    if not isinstance(error, MontyRuntimeError | MontySyntaxError):
        return ProgramFailed("program_error", str(error))
    text, frames = error.display("type-msg"), error.traceback()
    line = frames[-1].line if frames else None
    code = "program_syntax_error" if isinstance(error, MontySyntaxError) else "program_error"
    if text.startswith(_LIMIT_ERRORS):
        code = "program_limit"
    message = text if line is None else f"{text} (line {line})"
    raw: dict[str, JSON] = {"type": text.partition(":")[0], "traceback": _shortened(error.display())}
    return ProgramFailed(code, message, {**raw, "line": line})


def _shortened(text: str) -> str:
    return text if len(text) <= _TRACE_CHARS else f"{text[:1_000]}\n  ...\n{text[-_TRACE_CHARS + 1_000 :]}"
