"""The expected behaviour of grants: which session may see which process."""

from __future__ import annotations

from collections.abc import Sequence

from lash.model.process.process import AgentScope, Grant, GrantEntry, SessionDetached
from tests.proof.model.kit import Refused
from tests.proof.model.process_model import ProcessModel


class GrantModel:
    """Grants on the processes of a model."""

    def __init__(self, processes: ProcessModel) -> None:
        self._all = processes
        self._grants: dict[tuple[str, str, str], Grant] = {}

    def grant(self, grant: Grant) -> Grant:
        self._all.find(grant.process_id)
        self._grants[_key(grant.scope, grant.process_id)] = grant
        return grant

    def revoke(self, scope: AgentScope, process_id: str) -> bool:
        return self._grants.pop(_key(scope, process_id), None) is not None

    def transfer(self, source: AgentScope, target: AgentScope, process_ids: Sequence[str]) -> None:
        if len(set(process_ids)) < len(process_ids):
            raise Refused("InvalidInput")
        if any(_key(source, each) not in self._grants for each in process_ids):
            raise Refused("GrantNotFound")
        for each in process_ids:
            old = self._grants.pop(_key(source, each))
            self._grants[_key(target, each)] = Grant(scope=target, process_id=each, kind=old.kind, label=old.label)

    def list(self, scope: AgentScope, *, live_only: bool) -> list[GrantEntry]:
        found = [
            (grant, self._all.processes[grant.process_id])
            for _, grant in sorted(self._grants.items())
            if grant.scope == scope
        ]
        return [
            GrantEntry(grant=grant, record=process.record())
            for grant, process in found
            if process.is_running or not live_only
        ]

    def has(self, scope: AgentScope, process_id: str) -> bool:
        return _key(scope, process_id) in self._grants

    def of_process(self, process_id: str) -> tuple[Grant, ...]:
        self._all.find(process_id)
        return tuple(grant for _, grant in sorted(self._grants.items()) if grant.process_id == process_id)

    def drop_processes(self, process_ids: set[str]) -> None:
        """Grants are removed with their process."""
        self._grants = {key: each for key, each in self._grants.items() if each.process_id not in process_ids}

    def detach_session(self, session_id: str, now: int) -> SessionDetached:
        mine = {key: each for key, each in self._grants.items() if key[0] == session_id}
        for key in mine:
            del self._grants[key]
        seen = {each.process_id for each in self._grants.values()}
        running = sorted({each.process_id for each in mine.values() if self._all.processes[each.process_id].is_running})
        return SessionDetached(
            session_id=session_id,
            revoked_grant_count=len(mine),
            cleared_wake_target_count=self._all.detach_session(session_id, now),
            orphaned_process_ids=tuple(each for each in running if each not in seen),
            preserved_process_ids=tuple(each for each in running if each in seen),
        )


def _key(scope: AgentScope, process_id: str) -> tuple[str, str, str]:
    return scope.session_id, scope.agent_frame_id or "", process_id
