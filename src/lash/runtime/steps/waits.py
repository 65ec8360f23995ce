"""What turns and processes wait for, and what they learn once: pauses, waits, the time, random values."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Protocol, TypeVar, overload

from lash.errors import InvalidInput, WaitRejected
from lash.model.effect import AwaitEvent, Sleep
from lash.model.value import JSON
from lash.model.wait import Cancelled, CustomIdentity, Question, Rejected, Resolution, Resolved, WaitIdentity, WaitKey
from lash.runtime.processes.branch import close
from lash.runtime.steps.ask import Ask, question_of
from lash.runtime.steps.journal import RACE, Journal, StepOptions
from lash.runtime.steps.race import Race, Waitable
from lash.runtime.steps.steps import Steps, milliseconds, nothing
from lash.runtime.steps.values import UNTYPED, from_json

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class WaitingRun(Protocol):
    """A run that can be parked."""

    @property
    def seed(self) -> str:
        """A text that is the same in every run of this turn or process, and in no other."""
        ...

    async def until(self, due_at_ms: int) -> None:
        """Return if the moment has come, or is about to, else park until then."""
        ...

    async def wait_key(self, identity: WaitIdentity) -> WaitKey: ...

    async def resolution(
        self, identity: WaitIdentity, timeout_ms: int | None, ask: Question | None = None
    ) -> tuple[Resolution, int]:
        """Return how a wait was resolved, and for how many milliseconds it was open, or park until it is resolved."""
        ...


class Waits(Steps):
    """Runs steps, and waits without memory and worker. What was waited for is recorded."""

    def __init__(self, run: WaitingRun, journal: Journal) -> None:
        super().__init__(journal, StepOptions())
        self._waiting = run

    def sleep(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> Waitable[None]:
        """Pause. The due time is set once; until then the turn or process takes no memory and no worker."""
        pause = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        if pause < timedelta(0):
            raise InvalidInput(f"a pause is not negative: {pause}")
        return self._sleep(self._journal.name("sleep"), Sleep(duration_ms=round(pause / timedelta(milliseconds=1))))

    def sleep_until(self, moment: datetime) -> Waitable[None]:
        """Pause until a moment, which must have a time zone."""
        if moment.tzinfo is None:
            raise InvalidInput(f"{moment} has no time zone")
        return self._sleep(self._journal.name("sleep"), Sleep(until_ms=round(moment.timestamp() * 1_000)))

    async def wait_key(self, name: str) -> str:
        """Return the key that resolves the wait of this name, from any process; it is safe in URLs."""
        self._journal.check_running()
        return (await self._waiting.wait_key(CustomIdentity(key=name))).text

    @overload
    def wait(
        self, name: str, *, timeout_s: float | None = None, of_type: type[T], ask: Ask | None = None
    ) -> Waitable[T]: ...

    @overload
    def wait(
        self, name: str, *, timeout_s: float | None = None, of_type: object = None, ask: Ask | None = None
    ) -> Waitable[Any]: ...

    def wait(
        self, name: str, *, timeout_s: float | None = None, of_type: object = None, ask: Ask | None = None
    ) -> Waitable[Any]:
        """Wait until the key of this name is resolved with ``app.resolve``, and return the value.

        A name stands for one resolution, so waiting for it again returns the same value. The value is of the type
        ``of_type``; without it, plain JSON.
        ``ask`` is a question for the person who resolves it: a text, or a `Question` with a JSON schema of the answer.
        Without a schema, the one of ``of_type`` is taken. ``lash waits ls`` shows it, and an answer that does not match
        is refused where it is given.
        Raises WaitRejected if it is resolved with an error or cancelled, TimeoutError when the time is over first.
        """
        key, declared = self._journal.name(f"wait.{name}"), UNTYPED if of_type is None else of_type
        return self._wait(key, name, milliseconds(timeout_s), declared, question_of(ask, declared))

    @overload
    def wait_any(self, first: Waitable[A], /) -> Awaitable[tuple[Literal[0], A]]: ...

    @overload
    def wait_any(
        self, first: Waitable[A], second: Waitable[B], /
    ) -> Awaitable[tuple[Literal[0], A] | tuple[Literal[1], B]]: ...

    @overload
    def wait_any(
        self, first: Waitable[A], second: Waitable[B], third: Waitable[C], /
    ) -> Awaitable[tuple[Literal[0], A] | tuple[Literal[1], B] | tuple[Literal[2], C]]: ...

    @overload
    def wait_any(self, *waitables: Waitable[T]) -> Awaitable[tuple[int, T]]: ...

    def wait_any(self, *waitables: Waitable[Any]) -> Awaitable[tuple[int, Any]]:
        """Wait for the first of several waits, signals, pauses and ends of children: its position, and its value.

        Which one it was is recorded with its value, in one write. The others stay as they are: a signal is left to the
        next wait for its name, a wait stays open, a child continues. Raises what the first one raises.
        """
        given: tuple[object, ...] = waitables
        other = [each for each in given if not isinstance(each, Waitable)]
        if other:
            for each in waitables:
                close(each)
            raise InvalidInput(
                f"expected a wait, a signal, a pause or the result of a child, got {type(other[0]).__name__}; race() "
                "takes steps and calls of async functions too"
            )
        return Race(self._journal, self._journal.name(RACE), waitables).run()

    @overload
    def race(self, first: Awaitable[A], second: Awaitable[B], /) -> Awaitable[A | B]: ...

    @overload
    def race(self, first: Awaitable[A], second: Awaitable[B], third: Awaitable[C], /) -> Awaitable[A | B | C]: ...

    @overload
    def race(self, *awaitables: Awaitable[T]) -> Awaitable[T]: ...

    def race(self, *awaitables: Awaitable[Any]) -> Awaitable[Any]:
        """Run several branches concurrently until the first ends; return its result, or raise its error.

        Give it what ``gather`` takes: steps, waits, and calls of async functions that contain them. The winner is
        recorded before the function continues, so every later run has the same one and does not run the losers again.

        The losers are cancelled: CancelledError is raised where they are. What a loser has recorded stays recorded, and
        a signal that its code has received is not received again. What it does while it is cancelled does not happen
        again after a crash, so put it behind the race if it must. A plain function in a thread runs to its end, and
        its result is dropped. Do not race a ``once`` step: if it loses, its outcome is unknown.
        """
        return self._first(self._journal.name(RACE), awaitables)

    def now(self) -> Awaitable[datetime]:
        """Return the time, the same in every run."""
        key = self._journal.name("now")
        return self._now(key)

    def random(self) -> float:
        """Return a random number from 0 to 1, the same in every run."""
        return random.Random(self._seed("random")).random()  # noqa: S311 (no secret is made of it)

    def uuid(self) -> uuid.UUID:
        """Return a random UUID, the same in every run."""
        return uuid.UUID(bytes=self._seed("uuid")[:16], version=4)

    def _seed(self, name: str) -> bytes:
        identity = f"{self._waiting.seed}\0{self._journal.name(name)}"
        return hashlib.sha256(identity.encode()).digest()

    async def _first(self, key: str, awaitables: tuple[Awaitable[Any], ...]) -> Any:  # noqa: ANN401
        _, result = await Race(self._journal, key, awaitables).run()
        return result

    def _sleep(self, key: str, command: Sleep) -> Waitable[None]:
        async def find() -> JSON:
            record = await self._journal.recorded(key, command, nothing)
            await self._waiting.until(record.due_at_ms or 0)
            return None

        return Waitable(self._journal, key, None, find, lambda _outcome: None)

    async def _now(self, key: str) -> datetime:
        # A sleep of no time is due at the clock of the storage.
        record = await self._journal.recorded(key, Sleep(duration_ms=0), nothing)
        return _EPOCH + timedelta(milliseconds=record.due_at_ms or 0)

    def _wait(
        self, key: str, name: str, timeout_ms: int | None, declared: object, ask: Question | None
    ) -> Waitable[Any]:
        async def find() -> JSON:
            resolution, made.waited_ms = await self._waiting.resolution(CustomIdentity(key=name), timeout_ms, ask)
            return _resolution_json(resolution)

        def read(outcome: JSON) -> Any:  # noqa: ANN401 (the declared type is known at run time)
            kept = outcome if isinstance(outcome, dict) else {}
            if kept.get("timed_out"):
                raise self._journal.as_recorded(TimeoutError(f"wait {name!r} was not resolved in time"))
            if "code" in kept:
                raise self._journal.as_recorded(WaitRejected(name, str(kept["code"]), str(kept.get("message", ""))))
            return from_json(kept.get("value"), declared, f"the value of wait {name!r}")

        made: Waitable[Any] = Waitable(self._journal, key, AwaitEvent(key_id=f"wait:{name}"), find, read)
        return made


def _resolution_json(resolution: Resolution) -> JSON:
    match resolution:
        case Resolved():
            return {"value": resolution.value}
        case Rejected():
            return {"code": resolution.code, "message": resolution.message}
        case Cancelled():
            return {"code": "cancelled", "message": "the wait was cancelled"}
    return {"timed_out": True}
