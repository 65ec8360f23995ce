"""The tool with which an agent runs a program that it has just written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec

from lash.agents.tools import Tool
from lash.code.engine import CodeEngine, checked_tools, shared_engine
from lash.code.interpreter import Interpreter
from lash.code.limits import CodeLimits
from lash.code.stubs import stubs_of
from lash.errors import InvalidProgram
from lash.runtime.errors import ProgramFailed
from lash.runtime.turns.turn import Turn

_MOST_CHARS: Final = 20_000
"""How much of the printed text, and how much of the result, the model gets back."""
_DESCRIPTION: Final = """\
Run a Python program in a sandbox and return what it prints and the value of its last expression.

The program may call these functions. Await the async ones, at the top level or with asyncio.gather:

{stubs}
ask_human waits for the answer of a person, asyncio.sleep for as long as it takes. Modules that exist: asyncio, \
datetime, json, math, re, random, time, collections, itertools. There are no files, no network, no classes with a base \
class, no generators, and no other modules. A mistake is reported with its line before anything runs."""


def run_code(
    tools: Sequence[Tool | Callable[..., object]] = (),
    *,
    limits: CodeLimits | None = None,
    engine: CodeEngine | None = None,
    name: str = "run_code",
) -> Tool:
    """Return a tool for agents that runs a program with these functions, in steps of the turn.

    Each call of a function is a step, ``ask_human`` is a wait and ``sleep`` a pause of the turn: a turn that is tried
    again repeats no recorded call. The model gets the result and the printed text, or the mistake with its line.
    The application that the agent is declared on ends the sandboxes of ``engine`` when it stops; without an engine all
    tools share one.
    """
    known, bounds, home = checked_tools(tools), limits or CodeLimits(), engine or shared_engine()
    stubs = stubs_of(known.values())

    async def check(source: str) -> str | None:
        problem = await home.sandboxes.check(source, stubs, {}, bounds)
        return None if problem is None else str(problem)

    async def run(turn: Turn, code: Annotated[str, "the Python source of the program"]) -> str:
        problem = await turn.step("check_code", check, code)
        if problem is not None:
            raise InvalidProgram("program_invalid", problem)
        printed: list[str] = []

        def show(text: str) -> None:
            printed.append(text)
            if not turn.is_replaying:
                turn.activity({"print": text})

        program = Interpreter(turn, known, bounds, home.sandboxes, show)
        try:
            output = await program.execute(code, {})
        except ProgramFailed as failed:
            raise ProgramFailed(failed.code, _text(str(failed), printed), failed.raw) from None
        return _text(msgspec.json.encode(output).decode(), printed)

    description = _DESCRIPTION.format(stubs=stubs_of(known.values(), with_docs=True))
    return Tool(run, name=name, description=description, engine=home)


def _text(result: str, printed: list[str]) -> str:
    shown = _cut("".join(printed))
    return f"{shown}{'' if not shown or shown.endswith(chr(10)) else chr(10)}{_cut(result)}"


def _cut(text: str) -> str:
    left = len(text) - _MOST_CHARS
    return text if left <= 0 else f"{text[:_MOST_CHARS]}\n[{left:,} more characters]\n"
