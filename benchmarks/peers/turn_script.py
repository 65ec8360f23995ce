"""A conversation with an agent that calls a tool twice in each turn: what is said, and what its model answers.

The model is a stand-in that answers at once, with the next text of its script. Each framework gets it in its own
interface: the number of results since the last message of the user says which text is next.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

from benchmarks.kit.text import prose
from benchmarks.peers.protocol import Answer, Crew, Question, digest

CALLS = 2
INSTRUCTIONS = "Answer with what the tool finds."
_USER, _CALL, _RESULT, _REPLY = 100, 60, 300, 300
_WARM = 2
_LOOK_S = 0.005


class ScriptedCall(NamedTuple):
    """One call of the tool: its id, its argument and its result."""

    call_id: str
    query: str
    result: str

    @property
    def arguments(self) -> str:
        return json.dumps({"query": self.query})


class ScriptedTurn(NamedTuple):
    """What is said in one turn."""

    user: str
    calls: tuple[ScriptedCall, ...]
    reply: str

    @property
    def texts(self) -> Iterator[str]:
        """What a framework has to keep of it, in its order."""
        yield self.user
        for call in self.calls:
            yield call.query
            yield call.result
        yield self.reply


@functools.cache
def scripted(session: int, number: int) -> ScriptedTurn:
    """Return one turn of a conversation. The message and each query begin with both numbers."""
    name = f"{session} {number}"
    calls = tuple(
        ScriptedCall(
            call_id=f"call-{number}-{place}",
            query=f"{name} {place} {prose((session, number, place, 'call'), _CALL)}",
            result=prose((session, number, place, "result"), _RESULT),
        )
        for place in range(CALLS)
    )
    user = f"{name} {prose((session, number, 'user'), _USER)}"
    return ScriptedTurn(user, calls, prose((session, number, "reply"), _REPLY))


def turn_of(user: str) -> ScriptedTurn:
    """Return the turn that a message of the user begins."""
    session, number, _ = user.split(" ", 2)
    return scripted(int(session), int(number))


def result_of(query: str) -> str:
    """Return the result of a call: this is what the tool does."""
    session, number, place, _ = query.split(" ", 3)
    return scripted(int(session), int(number)).calls[int(place)].result


def content_bytes(sessions: int, numbers: Iterable[int]) -> int:
    """Return the bytes of what is said in these turns of each conversation."""
    places = [(session, number) for session in range(sessions) for number in numbers]
    return sum(len(text.encode()) for session, number in places for text in scripted(session, number).texts)


def script_digest(session: int, turns: int) -> str:
    """Return the hash of a whole conversation."""
    return digest(text for number in range(turns) for text in scripted(session, number).texts)


class Conversation(NamedTuple):
    """One conversation in a framework."""

    say: Callable[[str], Awaitable[str]]
    """Send a message of the user, and return the reply once the turn is stored."""
    texts: Callable[[], Awaitable[Sequence[str]]]
    """Return what is stored of all turns, in order."""


Begin = Callable[[int, Sequence[ScriptedTurn]], Awaitable[Conversation]]
"""Begin a conversation, by its number, that has had some turns already; they are stored and not run."""
Opened = Callable[[Question], AbstractAsyncContextManager[Begin]]
"""Open a framework's storage, and close it."""


def agent_turns(opened: Opened) -> Callable[[Question], Awaitable[Answer]]:
    """Return the task that runs turns of several conversations at once, and answers how long they took together."""

    async def task(question: Question) -> Answer:
        crew, sessions, before = Crew(question), range(question["sessions"]), question["before"]
        scripts = [[scripted(each, number) for number in range(before + question["turns"])] for each in sessions]
        # The runner measures the database before and after the turns.
        async with _ready(crew), opened(question) as begin:
            if question["turns"] < 1:
                raise ValueError(f"expected a number of turns, got {question['turns']}")
            conversations = [await begin(each, scripts[each][:before]) for each in sessions]
            # What is used for the first time is loaded, connected and planned then; that is no part of a turn.
            others = [await begin(len(sessions) + each, []) for each in sessions]
            await asyncio.gather(*(_run(other, _warm(len(sessions) + each)) for each, other in enumerate(others)))
            crew.begin()
            while not crew.may_go():
                await asyncio.sleep(_LOOK_S)
            began = time.monotonic()
            await asyncio.gather(*(_run(conversations[each], scripts[each][before:]) for each in sessions))
            taken = time.monotonic() - began
            digests = [digest(await each.texts()) for each in conversations]
        return {"taken_ms": taken * 1e3, "digests": digests}

    return task


@asynccontextmanager
async def _ready(crew: Crew) -> AsyncIterator[None]:
    """Say that the program is ready even if it failed: the runner then gets the error as its answer."""
    try:
        yield
    except BaseException:
        crew.begin()
        raise


def _warm(session: int) -> list[ScriptedTurn]:
    """Return the turns of a conversation that is not measured."""
    return [scripted(session, number) for number in range(_WARM)]


async def _run(conversation: Conversation, turns: Iterable[ScriptedTurn]) -> None:
    for turn in turns:
        reply = await conversation.say(turn.user)
        assert reply == turn.reply, f"expected {turn.reply[:40]!r}, got {reply[:40]!r}"
