"""The journal of one run: what was recorded is replayed, what was not is run and recorded."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from lash.errors import ConfigError, LashError, OutcomeUnknown, StepFailed
from lash.model.effect import (
    AwaitEvent,
    Command,
    EffectClaim,
    EffectClaimed,
    EffectError,
    EffectRecord,
    EffectReplayed,
    EffectStatus,
    Envelope,
    ExecutionScope,
    Step,
)
from lash.model.lease import LeaseFence, LeaseOwner
from lash.model.process import ProcessFence
from lash.model.value import JSON, Value
from lash.plan.effect import encode_envelope, mismatch, replay_key
from lash.plan.scope import scope_id
from lash.runtime.branch import Branch, current_branch
from lash.runtime.errors import Permanent, Suspended
from lash.runtime.hooks import Hooks
from lash.runtime.policy import STEP_RETRY, Retry
from lash.runtime.values import describe, from_json, result_type, to_json
from lash.stores.storage import Storage

T = TypeVar("T")

_SHOWN_ARGUMENT_BYTES: Final = 1_024


class StepOptions(Value, frozen=True, kw_only=True):
    """How one step is recorded and tried. ``once`` is for what must not happen twice, such as a payment."""

    key: str | None = None
    once: bool = False
    retry: Retry = STEP_RETRY
    timeout_s: float | None = None


class Journal:
    """The records of one scope, and the right to add to them."""

    def __init__(
        self,
        storage: Storage,
        scope: ExecutionScope,
        fence: LeaseFence | ProcessFence,
        owner: LeaseOwner,
        hooks: Hooks,
        *,
        ttl_ms: int,
    ) -> None:
        self._storage = storage
        self.scope = scope
        self.fence = fence
        self._owner = owner
        self._hooks = hooks
        self._ttl_ms = ttl_ms
        self._records: dict[str, EffectRecord] = {}
        self._seen_failures: list[tuple[Envelope, EffectError]] = []
        self._stopped: BaseException | None = None
        self.active = 0
        """How many steps are being run right now."""
        self.on_idle: Callable[[], None] | None = None
        """Called when a step has ended."""
        self.before_new: Callable[[], None] | None = None
        """Called before anything is done that was not recorded; it may raise."""

    async def load(self) -> None:
        """Read what was recorded before."""
        after: str | None = None
        while True:
            page = await self._storage.effects.list(self.scope, after=after)
            self._records |= {record.replay_key: record for record in page}
            if len(page) < 1_000:  # noqa: PLR2004 (the default page of the store)
                return
            after = page[-1].replay_key

    def stop(self, reason: BaseException) -> None:
        """Let every further use raise: the run was suspended or has lost its right to go on."""
        self._stopped = reason

    def check_running(self) -> None:
        if self._stopped is not None:
            raise self._stopped

    def name(self, name: str, explicit: str | None = None) -> str:
        """Return the replay key of the next operation of a name, or of the explicit key."""
        self.check_running()
        if explicit is not None:
            return replay_key("key", explicit)
        return replay_key(self.branch().name(name))

    def branch(self) -> Branch:
        """Return the line of the run that is asking."""
        try:
            return current_branch.get()
        except LookupError:
            raise ConfigError("a step, a sleep or a wait belongs inside the run whose turn or context it is") from None

    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T] | T],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        options: StepOptions,
    ) -> Awaitable[T]:
        """Return what runs the step or replays it; its key is fixed now, in the order of the calls."""
        command = Step(name=name, input=describe(args, kwargs, limit=_SHOWN_ARGUMENT_BYTES))
        envelope = self._envelope(self.name(name, options.key), command)

        async def body() -> object:
            if not inspect.iscoroutinefunction(function):
                # A plain function may block; the loop, which keeps the leases, must not.
                outcome = await asyncio.to_thread(function, *args, **kwargs)
            else:
                outcome = function(*args, **kwargs)
            return await outcome if inspect.isawaitable(outcome) else outcome

        return self._run(envelope, body, result_type(function), options)

    def peek(self, key: str, command: Command) -> EffectRecord | None:
        """Return the record of an operation of the runtime itself if there is one."""
        return self._known(self._envelope(key, command))

    def recorded_outcomes(self, key_id: str) -> list[JSON]:
        """Return the outcomes of all recorded waits for the same thing."""
        return [
            record.outcome
            for record in self._records.values()
            if isinstance(record.envelope.command, AwaitEvent) and record.envelope.command.key_id == key_id
        ]

    async def recorded(self, key: str, command: Command, body: Callable[[], Awaitable[JSON]]) -> EffectRecord:
        """Return the record of an operation of the runtime itself, running it if there is none."""
        envelope = self._envelope(key, command)
        known = self._known(envelope)
        if known is not None:
            return known
        await self._settle_seen_failures()
        return await self._record(envelope, await body())

    async def _run(
        self, envelope: Envelope, body: Callable[[], Awaitable[object]], declared: object, options: StepOptions
    ) -> Any:  # noqa: ANN401 (the declared type is known at run time)
        name = envelope.replay_key
        known = self._known(envelope)
        if known is not None and known.status is not EffectStatus.IN_PROGRESS:
            self._hooks.step_replayed(self.scope, name)
            return _outcome(known, declared)
        await self._settle_seen_failures()
        self.active += 1
        try:
            if options.once:
                return await self._run_once(envelope, body, declared, options)
            return await self._run_and_record(envelope, body, declared, options)
        finally:
            self.active -= 1
            if self.on_idle is not None:
                self.on_idle()

    async def _run_and_record(
        self, envelope: Envelope, body: Callable[[], Awaitable[object]], declared: object, options: StepOptions
    ) -> object:
        what = f"the result of step {envelope.replay_key!r}"
        try:
            value = await self._attempts(envelope.replay_key, body, options)
        except Permanent as failure:
            await self._record(envelope, _as_error(failure))
            raise _failed(envelope.replay_key, _as_error(failure)) from failure
        except LashError:
            raise
        except Exception as failure:
            # If the handler goes on from here, a replay must fail here too; if it does not, trying again may help.
            self._seen_failures.append((envelope, _as_error(failure)))
            raise
        plain = to_json(value, declared, what)
        await self._record(envelope, plain)
        return from_json(plain, declared, what)

    async def _run_once(
        self, envelope: Envelope, body: Callable[[], Awaitable[object]], declared: object, options: StepOptions
    ) -> object:
        effects, what = self._storage.effects, f"the result of step {envelope.replay_key!r}"
        decision = await effects.begin(envelope, self._owner, ttl_ms=self._ttl_ms, once=True)
        if isinstance(decision, EffectReplayed):
            return _outcome(decision.record, declared)
        if not isinstance(decision, EffectClaimed):
            # Somebody began it, and whoever that was no longer holds the lease of this run.
            raise OutcomeUnknown(scope_id(self.scope), envelope.replay_key)
        async with self._kept(decision.claim) as claim:
            try:
                value = await self._attempts(envelope.replay_key, body, options)
            except Exception as failure:
                await effects.fail(claim, _as_error(failure))
                raise _failed(envelope.replay_key, _as_error(failure)) from failure
            plain = to_json(value, declared, what)
            self._records[envelope.replay_key] = await effects.finish(claim, plain)
        return from_json(plain, declared, what)

    @contextlib.asynccontextmanager
    async def _kept(self, claim: EffectClaim) -> AsyncIterator[EffectClaim]:
        """Renew the claim on an effect for as long as it runs."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._ttl_ms / 3_000)
                await self._storage.effects.renew(claim, ttl_ms=self._ttl_ms)

        renewing = asyncio.create_task(renew(), name="lash-effect-renewal")
        try:
            yield claim
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})

    async def _attempts(self, name: str, body: Callable[[], Awaitable[object]], options: StepOptions) -> object:
        for attempt in range(1, options.retry.max_attempts + 1):
            try:
                with self._hooks.step(self.scope, name, attempt):
                    async with asyncio.timeout(options.timeout_s):
                        return await body()
            except (Permanent, Suspended, asyncio.CancelledError):
                raise
            except Exception:
                if attempt == options.retry.max_attempts:
                    raise
            await asyncio.sleep(options.retry.pause_s(attempt))
        raise AssertionError("the last attempt returns or raises")

    async def _record(self, envelope: Envelope, outcome: JSON | EffectError) -> EffectRecord:
        self.check_running()
        record = await self._storage.effects.record(self.fence, envelope, outcome)
        self._records[envelope.replay_key] = record
        return record

    async def _settle_seen_failures(self) -> None:
        """Record the failures from which the handler went on."""
        self.check_running()
        if self.before_new is not None:
            self.before_new()
        while self._seen_failures:
            envelope, error = self._seen_failures.pop()
            await self._record(envelope, error)

    def _envelope(self, key: str, command: Command) -> Envelope:
        return Envelope(scope=self.scope, replay_key=key, command=command)

    def _known(self, envelope: Envelope) -> EffectRecord | None:
        self.check_running()
        known = self._records.get(envelope.replay_key)
        if known is not None and known.envelope != envelope:
            raise mismatch(encode_envelope(envelope), msgspec.json.encode(known.envelope).decode())
        return known


async def settle(storage: Storage, owner: LeaseOwner, envelope: Envelope, outcome: JSON | EffectError) -> EffectRecord:
    """Record what is known of a step whose outcome was unknown, so that the run goes on with it."""
    claim = await storage.effects.take_over(envelope, owner, ttl_ms=60_000)
    if isinstance(outcome, EffectError):
        return await storage.effects.fail(claim, outcome)
    return await storage.effects.finish(claim, outcome)


def root_branch() -> Branch:
    """Begin a new run: names are counted from 1 again."""
    branch = Branch()
    current_branch.set(branch)
    return branch


def _outcome(record: EffectRecord, declared: object) -> Any:  # noqa: ANN401 (the declared type is known at run time)
    if record.error is not None:
        raise _failed(record.replay_key, record.error)
    return from_json(record.outcome, declared, f"the recorded result of step {record.replay_key!r}")


def _failed(step: str, error: EffectError) -> StepFailed:
    return StepFailed(step, error.code, error.message)


def _as_error(failure: BaseException) -> EffectError:
    return EffectError(code=type(failure).__qualname__, message=str(failure) or type(failure).__qualname__)
