"""The durable waits of a storage: signed keys, over the rows of either database."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from lash.backend.change_waiter import ChangeWaiter, Watch
from lash.base.limits import check_digest, check_identifier, check_integer, check_limit
from lash.errors import CorruptData, InvalidInput, NotFound, SessionDeleted, WaitTimedOut, WaitUnknown
from lash.model.effect import ExecutionScope, ProcessScope
from lash.model.scope import check_execution_scope, scope_id, scope_session_id
from lash.model.wait import (
    Cancelled,
    Question,
    Resolution,
    ResolveAnswer,
    UnknownOrRevoked,
    WaitIdentity,
    WaitKey,
    WaitRecord,
)
from lash.plan.wait import (
    StoredKey,
    WaitAnswer,
    check_after,
    check_answer,
    check_key,
    check_timeout,
    check_wait_identity,
    decode_resolution,
    decode_wait,
    encode_question,
    encode_resolution,
    generation_of,
    is_checked,
    must_check,
    resolve_answer,
    sign_key,
    verify_key,
)
from lash.stores.hints import Hints
from lash.stores.wait import WaitRows

_PENDING: Final = ""
"""The state of a pending wait; the state of a resolved one is its stored resolution."""
_CLOCK_GRACE_S: Final = 0.002
"""Wait this much longer than the deadline, so that the clock of the storage has passed it, too."""
_LONGEST_TIMER_S: Final = 3_600.0
"""Check a distant deadline at least hourly: the clock of the storage may be set."""


class Waits:
    """The waits of one storage; the contract is `lash.stores.wait.WaitStore`."""

    def __init__(self, rows: WaitRows, changes: ChangeWaiter[Watch], hints: Hints) -> None:
        self._rows = rows
        self._changes = changes
        self._hints = hints
        self._kept_secret: bytes | None = None

    async def key(self, scope: ExecutionScope, identity: WaitIdentity) -> WaitKey:
        check_execution_scope(scope)
        check_wait_identity(identity)
        generation = await self._generation(scope)
        return sign_key(await self._secret(), scope, identity, generation)

    async def open(
        self, key: WaitKey | str, *, timeout_ms: int | None = None, ask: Question | None = None
    ) -> WaitRecord:
        timeout, question = check_timeout(timeout_ms), encode_question(ask)
        answer = await self._rows.open(await self._genuine(key), timeout, question)
        return _record(answer)

    async def get(self, key: WaitKey | str) -> WaitRecord | None:
        stored = verify_key(await self._secret(), check_key(key))
        row = None if stored is None else await self._rows.row(stored.key_id)
        return None if row is None else decode_wait(row)

    async def resolve(self, key: WaitKey | str, resolution: Resolution) -> ResolveAnswer:
        encoded = encode_resolution(resolution)
        stored = verify_key(await self._secret(), check_key(key))
        if stored is None:
            return UnknownOrRevoked()
        answer = await self._rows.resolve(stored, encoded, checked=is_checked(resolution))
        if must_check(answer):
            # A question does not change once it is asked.
            check_answer(answer, resolution)
            answer = await self._rows.resolve(stored, encoded, checked=True)
        if answer.written:
            self._hints.notify()
        return resolve_answer(answer)

    async def resolve_id(self, key_id: str, resolution: Resolution) -> ResolveAnswer:
        encode_resolution(resolution)
        row = await self._rows.row(check_digest("key_id", key_id))
        if row is None:
            return UnknownOrRevoked()
        wait = decode_wait(row)
        try:
            key = await self.key(wait.scope, wait.identity)
        except (NotFound, SessionDeleted):
            return UnknownOrRevoked()
        # A later session or process of the same id has other keys.
        return await self.resolve(key, resolution) if key.key_id == key_id else UnknownOrRevoked()

    async def get_id(self, key_id: str) -> WaitRecord | None:
        row = await self._rows.row(check_digest("key_id", key_id))
        return None if row is None else decode_wait(row)

    async def cancel(self, key: WaitKey | str) -> ResolveAnswer:
        return await self.resolve(key, Cancelled())

    async def wait(
        self, key: WaitKey | str, *, timeout_ms: int | None = None, patience_s: float | None = None
    ) -> Resolution:
        timeout = check_timeout(timeout_ms)
        if patience_s is not None and not patience_s >= 0:
            raise InvalidInput(f"patience_s must be a number of seconds from 0 on, not {patience_s!r}")
        stored = await self._genuine(key)
        if patience_s is None:
            return await self._wait(stored, timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                return await self._wait(stored, timeout)
        # The hint may have been lost; and the deadline is stored even if patience_s is 0.
        record = _record(await self._rows.open(stored, timeout, None))
        if record.resolution is None:
            raise WaitTimedOut(None, f"resolution of wait {stored.key_id}", patience_s)
        return record.resolution

    async def revoke(self, session_id: str) -> int:
        removed = await self._rows.revoke(check_identifier("session_id", session_id))
        self._hints.notify()
        return removed

    async def pending(
        self, *, scope: ExecutionScope | None = None, limit: int = 100, after: str | None = None
    ) -> tuple[WaitRecord, ...]:
        wanted = None if scope is None else scope_id(scope)
        rows = await self._rows.pending(wanted, check_limit(limit), check_after(after))
        return tuple(decode_wait(row) for row in rows)

    async def expire(self, *, limit: int = 100) -> int:
        expired = await self._rows.expire(None, check_limit(limit))
        if expired:
            self._hints.notify()
        return expired

    async def prune(self, *, resolved_before_ms: int, limit: int = 100) -> int:
        return await self._rows.prune(check_integer("resolved_before_ms", resolved_before_ms), check_limit(limit))

    async def _generation(self, scope: ExecutionScope) -> str:
        session_id = scope_session_id(scope)
        if session_id is not None:
            return generation_of(await self._rows.session_life(session_id))
        if isinstance(scope, ProcessScope):
            return generation_of(await self._rows.process_life(scope.process_id))
        return generation_of(None)

    async def _secret(self) -> bytes:
        if self._kept_secret is None:
            self._kept_secret = await self._rows.secret()
        return self._kept_secret

    async def _genuine(self, key: WaitKey | str) -> StoredKey:
        stored = verify_key(await self._secret(), check_key(key))
        if stored is None:
            raise WaitUnknown
        return stored

    async def _wait(self, key: StoredKey, timeout_ms: int | None) -> Resolution:
        with self._changes.watching(Watch(self._ask, key.key_id)) as watch:
            # In this order: a resolution after the open wakes the watch.
            answer = await self._rows.open(key, timeout_ms, None)
            record = _record(answer)
            if record.resolution is not None:
                return record.resolution
            if record.deadline_ms is None:
                return await self._follow(watch)
            delay_s = (record.deadline_ms - answer.now_ms) / 1000 + _CLOCK_GRACE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(delay_s, _LONGEST_TIMER_S)):
                    return await self._follow(watch)
            # Query now instead of within a second: the query expires waits by the clock of the storage.
            self._hints.notify()
            return await self._follow(watch)

    async def _follow(self, watch: Watch) -> Resolution:
        while True:
            state = await watch.changed()
            if state is None and await self._rows.row(watch.key) is None:
                # Read it, since the shared query may have run a moment before the wait was opened.
                raise WaitUnknown
            if isinstance(state, str) and state != _PENDING:
                return decode_resolution(state)

    async def _ask(self, key_ids: set[str]) -> dict[str, str]:
        """Time out the waits whose deadline has passed, and return the states of all."""
        states = await self._rows.states(key_ids)
        due = [state.key_id for state in states if state.due]
        if due and await self._rows.expire(due, len(due)):
            self._hints.notify()
            states = await self._rows.states(key_ids)
        return {state.key_id: state.resolution or _PENDING for state in states}


def _record(answer: WaitAnswer) -> WaitRecord:
    """Return the wait that was opened, or raise WaitUnknown."""
    if not answer.lives:
        raise WaitUnknown
    if answer.row is None:
        raise CorruptData("query wait_open returned no row for a wait that it opened")
    return decode_wait(answer.row)
