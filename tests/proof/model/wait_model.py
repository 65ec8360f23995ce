"""The expected behaviour of durable waits: the first resolution wins."""

from __future__ import annotations

import dataclasses

from lash.model.effect import ExecutionScope
from lash.model.wait import (
    Accepted,
    AlreadyResolved,
    Resolution,
    ResolveAnswer,
    TimedOut,
    UnknownOrRevoked,
    WaitIdentity,
    WaitRecord,
)
from tests.proof.model.effect_model import owner_of
from tests.proof.model.kit import Refused


@dataclasses.dataclass(frozen=True, eq=False)
class Key:
    """One key, valid for one life of its owner. Two keys of the same wait are the same object."""

    scope: ExecutionScope
    identity: WaitIdentity
    life: int


@dataclasses.dataclass(eq=False)
class Wait:
    key: Key
    created: int
    deadline: int | None = None
    resolution: Resolution | None = None
    resolved: int | None = None

    def record(self) -> WaitRecord:
        return WaitRecord(
            key_id="",
            scope=self.key.scope,
            identity=self.key.identity,
            deadline_ms=self.deadline,
            resolution=self.resolution,
            created_at_ms=self.created,
            resolved_at_ms=self.resolved,
        )


class WaitModel:
    """All waits. The machine adds and removes the sessions and processes."""

    def __init__(self) -> None:
        self.lives: dict[str, int] = {}
        """For each existing session and process, a number that no other life or generation of it had."""
        self.deleted: set[str] = set()
        self.reasons: dict[str, int] = {}
        """For each process, how often a wait of it was resolved."""
        self._born = 0
        self._keys: dict[tuple[ExecutionScope, WaitIdentity, int], Key] = {}
        self.waits: dict[Key, Wait] = {}

    def create_owner(self, name: str) -> None:
        self._born += 1
        self.lives[name] = self._born
        self.reasons[name] = 0

    def remove_owner(self, name: str) -> None:
        """A session is deleted, or a process pruned: its waits are removed."""
        del self.lives[name]
        self.deleted.add(name)
        self._drop(name)

    def revoke(self, session_id: str) -> int:
        name = f"session:{session_id}"
        if name not in self.lives:
            return 0
        gone = self._drop(name)
        self._born += 1
        self.lives[name] = self._born
        return gone

    def key(self, scope: ExecutionScope, identity: WaitIdentity) -> Key:
        name, life = owner_of(scope), 0
        if name is not None:
            if name not in self.lives:
                raise Refused(_missing(name, deleted=name in self.deleted))
            life = self.lives[name]
        return self._keys.setdefault((scope, identity, life), Key(scope, identity, life))

    def lives_of(self, key: Key) -> bool:
        """Return whether the owner of a key still exists in the same life, and the key is not revoked."""
        name = owner_of(key.scope)
        return name is None or self.lives.get(name) == key.life

    def open(self, key: Key, timeout: int | None, now: int) -> WaitRecord:
        if not self.lives_of(key):
            raise Refused("WaitUnknown")
        wait = self.waits.setdefault(key, Wait(key, now))
        if wait.resolution is None and wait.deadline is None and timeout is not None:
            wait.deadline = now + timeout
        return wait.record()

    def resolve(self, key: Key, resolution: Resolution, now: int) -> ResolveAnswer:
        if not self.lives_of(key):
            return UnknownOrRevoked()
        wait = self.waits.setdefault(key, Wait(key, now))
        if wait.resolution is not None:
            return AlreadyResolved(terminal=wait.resolution)
        self._settle(wait, resolution, now)
        return Accepted()

    def get(self, key: Key) -> WaitRecord | None:
        wait = self.waits.get(key)
        return None if wait is None else wait.record()

    def pending(self, scope: ExecutionScope | None) -> list[WaitRecord]:
        return [
            wait.record() for wait in self.waits.values() if wait.resolution is None and scope in (None, wait.key.scope)
        ]

    def due(self, now: int) -> list[Wait]:
        """Return the waits whose deadline has passed, earliest first."""
        over = [
            (wait.deadline, wait)
            for wait in self.waits.values()
            if wait.resolution is None and wait.deadline is not None and wait.deadline <= now
        ]
        return [wait for _, wait in sorted(over, key=lambda each: each[0])]

    def expire(self, now: int) -> int:
        over = self.due(now)
        for wait in over:
            self._settle(wait, TimedOut(), now)
        return len(over)

    def prune(self, before: int) -> int:
        gone = [
            key
            for key, wait in self.waits.items()
            if owner_of(key.scope) is None and wait.resolved is not None and wait.resolved < before
        ]
        for key in gone:
            del self.waits[key]
        return len(gone)

    def _settle(self, wait: Wait, resolution: Resolution, now: int) -> None:
        wait.resolution, wait.resolved = resolution, now
        name = owner_of(wait.key.scope)
        if name in self.reasons:
            self.reasons[name] += 1

    def _drop(self, name: str) -> int:
        gone = [key for key in self.waits if owner_of(key.scope) == name]
        for key in gone:
            del self.waits[key]
        return len(gone)


def _missing(name: str, *, deleted: bool) -> str:
    if name.startswith("process:"):
        return "ProcessPruned" if deleted else "ProcessNotFound"
    return "SessionDeleted" if deleted else "SessionNotFound"
