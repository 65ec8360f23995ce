"""Rules about grants: which session may see which process."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from lash.model.process.process import AgentScope, Grant
from tests.proof.model.base_rules import session_ids
from tests.proof.model.expected import like
from tests.proof.model.grant_model import GrantModel
from tests.proof.model.kit import action
from tests.proof.model.process_life import ProcessLife, process_ids
from tests.proof.model.world import World

SCOPES: Final = (
    AgentScope(session_id="s0"),
    AgentScope(session_id="s0", agent_frame_id="f"),
    AgentScope(session_id="s1"),
    AgentScope(session_id="never"),
)
"""Sessions that are created and deleted, a frame of one, and a session that never exists."""
scopes: Final = st.sampled_from(SCOPES)


class GrantRules(ProcessLife):
    """Grant, revoke, transfer, and the grants of deleted sessions."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.grants = GrantModel(self.processes)

    @action(8, scope=scopes, process_id=process_ids, kind=st.sampled_from((None, "watch")))
    def grant(self, scope: AgentScope, process_id: str, kind: str | None) -> None:
        wanted = Grant(scope=scope, process_id=process_id, kind=kind, label=kind)
        self.step("grant", lambda side: side.storage.grants.grant(wanted), lambda _: self.grants.grant(wanted))

    @action(3, scope=scopes, process_id=process_ids)
    def revoke(self, scope: AgentScope, process_id: str) -> None:
        was_there = self.step(
            "revoke",
            lambda side: side.storage.grants.revoke(scope, process_id),
            lambda _: self.grants.revoke(scope, process_id),
        )
        self.count(f"revoke:{was_there}")

    @action(6, source=scopes, target=scopes, wanted=st.lists(process_ids, min_size=1, max_size=2))
    def transfer(self, source: AgentScope, target: AgentScope, wanted: list[str]) -> None:
        self.step(
            "transfer",
            lambda side: side.storage.grants.transfer(source, target, wanted),
            lambda _: self.grants.transfer(source, target, wanted),
        )

    @action(3, scope=scopes, live_only=st.booleans(), process_id=process_ids)
    def see(self, scope: AgentScope, process_id: str, *, live_only: bool) -> None:
        self.step(
            "list",
            lambda side: side.storage.grants.list(scope, live_only=live_only),
            like(lambda: self.grants.list(scope, live_only=live_only)),
        )
        self.step(
            "has", lambda side: side.storage.grants.has(scope, process_id), lambda _: self.grants.has(scope, process_id)
        )
        self.step(
            "of_process",
            lambda side: side.storage.grants.of_process(process_id),
            lambda _: self.grants.of_process(process_id),
        )

    @action(3, session_id=st.one_of(session_ids, st.just("never")))
    def detach(self, session_id: str) -> None:
        report = self.step(
            "detach",
            lambda side: side.storage.grants.detach_session(session_id),
            lambda _: self.grants.detach_session(session_id, self.now_ms),
        )
        assert report is not None
        for name in (
            "revoked_grant_count",
            "cleared_wake_target_count",
            "orphaned_process_ids",
            "preserved_process_ids",
        ):
            if getattr(report, name):
                self.count(f"detach:{name}")

    def pruned(self, before: int) -> set[str]:
        gone = super().pruned(before)
        self.grants.drop_processes(gone)
        return gone

    def forget_session(self, session_id: str) -> bool:
        self.grants.detach_session(session_id, self.now_ms)
        return super().forget_session(session_id)
