"""The journal of one run: recorded steps are replayed, others are run and recorded."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from lash.base.ids import new_id
from lash.base.limits import check_identifier
from lash.base.replay_key import replay_key
from lash.errors import ConfigError, EffectMismatch, InvalidInput, LeaseLost, OutcomeUnknown, StepFailed
from lash.model.effect import (
    AwaitEvent,
    Command,
    EffectClaim,
    EffectClaimed,
    EffectError,
    EffectRecord,
    EffectReplayed,
    EffectRun,
    EffectStatus,
    Envelope,
    ExecutionScope,
    Step,
)
from lash.model.lease import LeaseFence, LeaseOwner
from lash.model.limit import Limit
from lash.model.scope import scope_id
from lash.model.session.trace import TraceStep
from lash.model.value import JSON
from lash.plan.effect.effect import check_key, encode_envelope, mismatch
from lash.plan.session.trace import trace_steps
from lash.runtime.errors import STORAGE_TROUBLE, Permanent, error_code, error_text
from lash.runtime.hooks import Hooks, scope_attributes
from lash.runtime.outage import HeldLease
from lash.runtime.processes.branch import Branch, Branches, current_branch, current_line, own_branch, root_branch
from lash.runtime.steps.limit import RUN, Limiter
from lash.runtime.steps.options import StepOptions
from lash.runtime.steps.stopwatch import Stopwatch
from lash.runtime.steps.values import check_type, describe, from_json, result_type, to_json
from lash.runtime.time_limit import time_limit
from lash.stores.storage import Storage

__all__ = ["Journal", "StepOptions", "root_branch"]

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

_SHOWN_ARGUMENT_BYTES: Final = 1_024
RACE: Final = "race"
"""The name of the record of a race."""


class Journal:
    """The records of one scope, and the right to add to them."""

    def __init__(
        self,
        storage: Storage,
        scope: ExecutionScope,
        fence: LeaseFence,
        lease: HeldLease,
        owner: LeaseOwner,
        hooks: Hooks,
        limits: Mapping[str, Limit],
        *,
        ttl_ms: int,
        prefix: str = "",
        attempt: int = 1,
    ) -> None:
        """Prepare a journal of one attempt; the names of all operations begin with the prefix."""
        self._storage = storage
        self.scope = scope
        self.fence = fence
        self._lease = lease
        self._owner = owner
        self._hooks = hooks
        self._ttl_ms = ttl_ms
        self._prefix = prefix
        self._attempt = attempt
        self._traceparent: str | None = None
        self.limits = Limiter(storage.limits, limits, lease, fence)
        self._records: dict[str, EffectRecord] = {}
        self._ahead: set[str] = set()
        """The keys of records that an earlier run wrote and this one has not come to."""
        self._running: set[str] = set()
        self._recorded_errors: list[BaseException] = []
        self._loop = asyncio.get_running_loop()
        self._stopped: BaseException | None = None
        self.lines = Branches()
        self.steps = 0
        """How many steps the function has awaited in this run, replayed ones too."""
        self.before_new: Callable[[], None] | None = None
        """Called before new work, which has no record; it may raise."""

    def enter_span(self) -> None:
        """Keep the current span as that of this attempt: records carry it, so that a later attempt can link to it."""
        self._traceparent = self._hooks.traceparent()

    async def load(self) -> None:
        """Read the existing records, and note the span of the last attempt that wrote one."""
        after: str | None = None
        while True:
            page = await self._lease.bridge("reading the steps", self._storage.effects.list, self.scope, after=after)
            self._records |= {record.replay_key: record for record in page}
            if len(page) < 1_000:  # noqa: PLR2004 (the default page of the store)
                break
            after = page[-1].replay_key
        self._ahead = {key for key in self._records if not self._is_beside(key)}
        traced = [record for record in self._records.values() if record.traceparent is not None]
        if traced:
            last = max(traced, key=lambda record: (record.updated_at_ms, record.attempt or 0)).traceparent
            # The same attempt reads its own records if it starts again with more of the conversation.
            if last is not None and last != self._traceparent:
                self._hooks.note("run.resumed", traceparent=last, **scope_attributes(self.scope))

    def stop(self, reason: BaseException) -> None:
        """Make every further use raise: the run was suspended or has lost its lease."""
        self._stopped = reason

    def check_running(self) -> None:
        if self._stopped is not None:
            raise self._stopped

    def name(self, name: str, explicit: str | None = None) -> str:
        """Return the replay key of the next operation of a name, or of the explicit key."""
        self.check_running()
        if explicit is not None:
            current_line()
            key = self._prefix + replay_key("key", explicit)
        else:
            key = replay_key(own_branch().name(name))
        check_key(self.scope, key)
        return key

    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T] | T],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        options: StepOptions,
    ) -> Awaitable[T]:
        """Return an awaitable that runs or replays the step; its key is fixed now, in the order of the calls."""
        check_identifier("the name of a step", name)
        if options.limit is not None:
            self.limits.find(options.limit)
        declared = result_type(function)
        check_type(declared, f"step {name!r}: the type of its result")
        command = Step(name=name, input=describe(args, kwargs, limit=_SHOWN_ARGUMENT_BYTES))
        envelope = self._envelope(self.name(name, options.key), command)

        async def body() -> object:
            if not inspect.iscoroutinefunction(function):
                # A plain function may block; the loop, which keeps the leases, must not.
                outcome = await asyncio.to_thread(function, *args, **kwargs)
            else:
                outcome = function(*args, **kwargs)
            return await outcome if inspect.isawaitable(outcome) else outcome

        return self._run(envelope, body, declared, options)

    @property
    def is_replaying(self) -> bool:
        """Whether this run has not come to all that earlier runs have recorded."""
        return bool(self._ahead)

    def _is_beside(self, key: str) -> bool:
        """Return whether a replay may leave out a record: that of a deadline or a limit of another operation."""
        return key.rpartition(":")[0] in self._records or key.startswith(f"{RUN}:")

    @property
    def has_begun(self) -> bool:
        """Whether an earlier run has recorded anything but that it waited for its limit."""
        return any(not key.startswith(f"{RUN}:") for key in self._records)

    def peek(self, key: str, command: Command) -> EffectRecord | None:
        """Return the record of an operation of the runtime itself if there is one."""
        return self._known(self._envelope(key, command))

    def begin(self) -> None:
        """Start a run in the calling task: names are counted from 1 again."""
        self.lines.begin(self._prefix)

    def trace(self) -> tuple[TraceStep, ...]:
        """Return how the recorded steps ran, in the order in which they began."""
        return trace_steps(self._records.values())

    def waited(self) -> list[tuple[str, JSON]]:
        """Return what recorded waits were for, with their outcomes, alone or as the winner of a race."""
        return [each for record in self._records.values() for each in _waited(record)]

    def fail_later(self, key: str, command: Command, outcome: JSON) -> None:
        """Record an outcome once this branch continues after the failure that it stands for."""
        current_line().failures.append((self._envelope(key, command), outcome, EffectRun(attempt=self._attempt)))

    async def recorded(
        self, key: str, command: Command, body: Callable[[], Awaitable[JSON]], *, took_ms: int = 0
    ) -> EffectRecord:
        """Return the record of an operation of the runtime itself, running it if there is none.

        ``took_ms`` is what it took before this call, such as the time for which a wait was open.
        """
        envelope = self._envelope(key, command)
        known = self._known(envelope)
        if known is not None:
            return known
        await self.begin_new()
        watch = Stopwatch(self._attempt, took_ms)
        outcome = await self._bridge(f"operation {key!r}", body)
        return await self._record(envelope, outcome, watch.ran())

    async def begin_new(self) -> None:
        """Prepare for new work: record the failures after which this branch continues.

        Failures of concurrent branches stay unrecorded: whether the code continues after them is not known yet.
        """
        self.check_running()
        if self.before_new is not None:
            self.before_new()
        branch = current_branch.get(None)
        while branch is not None and branch.failures:
            envelope, error, ran = branch.failures.pop(0)
            await self._record(envelope, error, ran)

    def as_recorded(self, error: E) -> E:
        """Return the error after noting that it is the same in every run, so that another attempt cannot help."""
        self._recorded_errors.append(error)
        return error

    def is_recorded(self, error: BaseException) -> bool:
        """Return True if an error was raised from a record."""
        return any(error is each for each in self._recorded_errors)

    async def _run(
        self, envelope: Envelope, body: Callable[[], Awaitable[object]], declared: object, options: StepOptions
    ) -> Any:  # noqa: ANN401 (the declared type is known at run time)
        name = envelope.replay_key
        self.steps += 1
        self._check_loop(name)
        known = self._known(envelope)
        if known is not None and known.status is not EffectStatus.IN_PROGRESS:
            self._hooks.step_replayed(self.scope, name)
            return self._outcome(known, declared)
        limit = options.limit_of
        if limit is None:
            await self.begin_new()
            return await self._run_new(envelope, body, declared, options)
        async with self.limits.admitted(self, name, limit):
            return await self._run_new(envelope, body, declared, options)

    async def _run_new(
        self, envelope: Envelope, body: Callable[[], Awaitable[object]], declared: object, options: StepOptions
    ) -> object:
        """Run a step that has no outcome yet."""
        name = envelope.replay_key
        if name in self._running:
            raise InvalidInput(f"two steps run at once under the key {name!r}; give each its own")
        self._running.add(name)
        self.lines.active += 1
        try:
            if options.once:
                return await self._run_once(envelope, body, declared, options)
            return await self._run_and_record(envelope, body, declared, options)
        finally:
            self._running.discard(name)
            self.lines.active -= 1
            self.lines.check_quiet()

    async def _run_and_record(
        self, envelope: Envelope, body: Callable[[], Awaitable[object]], declared: object, options: StepOptions
    ) -> object:
        what, watch = f"the result of step {envelope.replay_key!r}", Stopwatch(self._attempt)
        try:
            value = await self._attempts(envelope.replay_key, body, options, watch)
        except Permanent as failure:
            # Another attempt of this run cannot help; one after an operator fixed the cause may.
            self._fail_for_now(envelope, failure, watch)
            raise self._failed(envelope.replay_key, _as_error(failure)) from failure
        except Exception as failure:
            self._fail_for_now(envelope, failure, watch)
            raise
        try:
            plain = to_json(value, declared, what)
            await self._record(envelope, plain, watch.ran())
        except InvalidInput as failure:
            self._fail_for_now(envelope, failure, watch)
            raise
        return from_json(plain, declared, what)

    def _check_loop(self, name: str) -> None:
        """Refuse a step before it runs if its outcome could not be recorded."""
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError(
                f"step {name!r} was awaited in another event loop than its run; in a thread, pass a coroutine to the "
                "loop of the run: asyncio.run_coroutine_threadsafe(coroutine, loop).result()"
            )

    def _fail_for_now(self, envelope: Envelope, failure: Exception, watch: Stopwatch) -> None:
        """Keep a failure. If the branch continues after it, a replay must fail too; if not, a retry may help."""
        current_line().failures.append((envelope, _as_error(failure), watch.ran()))

    async def _run_once(
        self, envelope: Envelope, body: Callable[[], Awaitable[object]], declared: object, options: StepOptions
    ) -> object:
        effects, what = self._storage.effects, f"the result of step {envelope.replay_key!r}"
        # With a token, a repeat gets the claim of a try whose answer was lost.
        start, token = f"the start of step {envelope.replay_key!r}", new_id()
        attempt = self._attempt
        decision = await self._bridge(
            start,
            effects.claim,
            envelope,
            self._owner,
            ttl_ms=self._ttl_ms,
            once=True,
            token=token,
            attempt=attempt,
            traceparent=self._traceparent,
        )
        if isinstance(decision, EffectReplayed):
            return self._outcome(decision.record, declared)
        if not isinstance(decision, EffectClaimed):
            # Another run started it and has lost the lease since.
            raise OutcomeUnknown(scope_id(self.scope), envelope.replay_key)
        async with self._kept(decision.claim) as claim:
            try:
                value = await self._attempts(envelope.replay_key, body, options, Stopwatch(attempt))
                plain = to_json(value, declared, what)
            except Exception as failure:
                raise await self._fail_once(claim, failure) from failure
            try:
                self._records[envelope.replay_key] = await self._bridge(what, effects.finish, claim, plain)
            except InvalidInput as failure:
                raise await self._fail_once(claim, failure) from failure
        return from_json(plain, declared, what)

    async def _fail_once(self, claim: EffectClaim, failure: Exception) -> StepFailed:
        """Record the failure of a `once` step, and return the error to raise."""
        what, error = f"the failure of step {claim.replay_key!r}", _as_error(failure)
        record = await self._bridge(what, self._storage.effects.fail, claim, error)
        self._records[record.replay_key] = record
        return self._failed(record.replay_key, _as_error(failure))

    @contextlib.asynccontextmanager
    async def _kept(self, claim: EffectClaim) -> AsyncIterator[EffectClaim]:
        """Renew the claim on an effect for as long as it runs."""
        what, once_more = f"the claim on step {claim.replay_key!r}", self._storage.effects.renew

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._ttl_ms / 3_000)
                await self._lease.bridge(what, once_more, claim, ttl_ms=self._ttl_ms)

        renewing = asyncio.create_task(renew(), name="lash-effect-renewal")
        try:
            yield claim
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})

    async def _attempts(
        self, name: str, body: Callable[[], Awaitable[object]], options: StepOptions, watch: Stopwatch
    ) -> object:
        for attempt in range(1, options.retry.max_attempts + 1):
            watch.tries = attempt
            inside = current_branch.set(Branch(inside=name))
            try:
                with self._hooks.step(self.scope, name, attempt):
                    if options.timeout_s is None:
                        return await body()
                    async with time_limit(options.timeout_s, f"step {name!r}"):
                        return await body()
            except Permanent:
                raise
            except Exception:
                if attempt == options.retry.max_attempts:
                    raise
            finally:
                current_branch.reset(inside)
            await asyncio.sleep(options.retry.pause_s(attempt))
            if options.limit_of is not None:
                await self.limits.wait(options.limit_of)
        raise AssertionError("the last attempt returns or raises")

    async def _record(self, envelope: Envelope, outcome: JSON | EffectError, ran: EffectRun) -> EffectRecord:
        self.check_running()
        what = f"the outcome of step {envelope.replay_key!r}"
        if self._traceparent is not None:
            ran = msgspec.structs.replace(ran, traceparent=self._traceparent)
        record = await self._bridge(what, self._storage.effects.record, self.fence, envelope, outcome, ran=ran)
        self._records[envelope.replay_key] = record
        return record

    async def _bridge(self, doing: str, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make an idempotent call of the storage; repeat it through an outage, and stop the run if that fails."""
        try:
            return await self._lease.bridge(doing, call, *args, **kwargs)
        except (LeaseLost, *STORAGE_TROUBLE) as lost:
            # Code that ignores the error must not write any more.
            if self._stopped is None:
                self.stop(lost)
            raise

    def _envelope(self, key: str, command: Command) -> Envelope:
        return Envelope(scope=self.scope, replay_key=key, command=command)

    def _known(self, envelope: Envelope) -> EffectRecord | None:
        self.check_running()
        known = self._records.get(envelope.replay_key)
        self._ahead.discard(envelope.replay_key)
        if known is not None and known.envelope != envelope:
            raise mismatch(encode_envelope(envelope), msgspec.json.encode(known.envelope).decode())
        return known

    def _outcome(self, record: EffectRecord, declared: object) -> Any:  # noqa: ANN401 (known at run time)
        if record.error is not None:
            raise self._failed(record.replay_key, record.error)
        try:
            return from_json(record.outcome, declared, "it")
        except InvalidInput as error:
            # The code has changed, not the record: with the right code the process continues.
            raise EffectMismatch(
                scope_id(self.scope), record.replay_key, path="outcome", recorded=record.outcome, given=str(error)
            ) from None

    def _failed(self, step: str, error: EffectError) -> StepFailed:
        return self.as_recorded(StepFailed(step, error.code, error.message))


def _as_error(failure: BaseException) -> EffectError:
    return EffectError(code=error_code(failure), message=error_text(failure))


def _waited(record: EffectRecord) -> Iterator[tuple[str, JSON]]:
    """Return what was waited for, and the outcome."""
    outcome, command = record.outcome, record.envelope.command
    if isinstance(command, AwaitEvent):
        yield command.key_id, outcome
    elif isinstance(command, Step) and command.name == RACE and isinstance(outcome, dict) and "key_id" in outcome:
        yield str(outcome["key_id"]), outcome.get("outcome")
