"""Rules that every machine with processes needs: they are registered, sent requests, ended and pruned."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from hypothesis import strategies as st

from lash.model.causal import ProcessCause
from lash.model.process.process import (
    Abandonment,
    Cancellation,
    EngineInput,
    ExternalInput,
    Failure,
    Outcome,
    ProcessIdentity,
    ProcessRecord,
    Provenance,
    Recovery,
    Registration,
    Success,
)
from lash.model.session.created import CreatedSession
from lash.model.value import JSON
from tests.proof.model.base_rules import SessionLife
from tests.proof.model.event_types import DECLARED
from tests.proof.model.expected import like
from tests.proof.model.kit import action
from tests.proof.model.process_model import ProcessModel
from tests.proof.model.world import Side, World

PROCESS_IDS: Final = ("P", "a", "ä")
"""In the order of their code points, which differs from that of some languages."""
process_ids: Final = st.sampled_from(("a", "a", "a", *PROCESS_IDS))

ENGINE: Final = EngineInput(kind="work", payload={"n": 1})
KINDS: Final[tuple[dict[str, Any], ...]] = (
    {"input": ENGINE, "environment_ref": "e", "wake_session_id": "s0"},
    {"input": ENGINE, "environment_ref": "e", "wake_session_id": "s1", "recovery": Recovery.OWNER_BOUND},
    {"input": ExternalInput(metadata={"at": "elsewhere"}), "recovery": Recovery.EXTERNAL},
    {
        "input": ENGINE,
        "environment_ref": "e",
        "provenance": Provenance(caused_by=ProcessCause(process_id="a")),
    },
)
OUTCOMES: Final[tuple[Outcome, ...]] = (
    Success(value={"answer": 42}),
    Success(value=None),
    Failure(code="broken", message="it broke"),
    Cancellation(message="as asked"),
    Abandonment(message="gone", evidence={"since": 3}),
)


def registration(process_id: str, kind: int) -> Registration:
    """Return one of the registrations of an id."""
    fields = KINDS[kind]
    return Registration(
        process_id=process_id,
        identity=ProcessIdentity(kind="external" if kind == 2 else "work"),
        event_types=DECLARED,
        **fields,
    )


class ProcessLife(SessionLife):
    """A machine whose processes are registered, ended and pruned."""

    LEFT_OUT: ClassVar[frozenset[tuple[str, str]]] = frozenset({("lash_source_keys", "content_hash")})

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.processes = ProcessModel()

    def prepare(self) -> None:
        super().prepare()
        self.register("a", 0)

    @action(6, process_id=process_ids, kind=st.sampled_from((0, 0, 1, 2, 3)))
    def register(self, process_id: str, kind: int) -> None:
        wanted = registration(process_id, kind)
        made = self.step(
            "register",
            lambda side: side.storage.processes.register(wanted),
            like(lambda: self.processes.register(wanted, self.now_ms)),
        )
        if made is not None:
            self.count("register:new" if made.created else "register:known")

    @action(
        4,
        process_id=process_ids,
        name=st.sampled_from(("go", "go", "stop", "unheard_of")),
        signal_id=st.sampled_from("ab"),
        payload=st.sampled_from(("x", 3)),
    )
    def signal(self, process_id: str, name: str, signal_id: str, payload: JSON) -> None:
        self.step(
            "signal",
            lambda side: side.storage.events.signal(process_id, name, signal_id=signal_id, payload=payload),
            like(lambda: self.processes.signal(process_id, name, signal_id, payload, self.now_ms)),
        )
        self.check(process_id)

    @action(2, process_id=process_ids, outcome=st.sampled_from(OUTCOMES))
    def complete(self, process_id: str, outcome: Outcome) -> None:
        self.step(
            "complete",
            lambda side: side.storage.processes.complete(process_id, outcome),
            like(lambda: self.processes.complete(process_id, outcome, self.now_ms)),
        )
        self.check(process_id)

    @action(3, process_id=process_ids, what=st.sampled_from(("cancel", "abandon")), reason=st.sampled_from(("", "why")))
    def request(self, process_id: str, what: str, reason: str) -> None:
        async def ask(side: Side) -> ProcessRecord:
            store = side.storage.processes
            request = store.request_cancel if what == "cancel" else store.request_abandon
            return await request(process_id, reason=reason)

        self.step(
            f"request_{what}",
            ask,
            like(
                lambda: self.processes.own_event(
                    process_id, f"{what}_requested", {"reason": reason}, f"{what}:{reason}", self.now_ms
                )
            ),
        )
        self.check(process_id)

    @action(3, age=st.sampled_from((-1, 0, 1_000)))
    def prune(self, age: int) -> None:
        before = self.now_ms - age
        pruned = self.step(
            "prune",
            lambda side: _pruned(side, before),
            lambda _: sorted(self.pruned(before)),
        )
        self.count("prune:some" if pruned else "prune:none")

    def check(self, process_id: str) -> None:
        """The record follows from the log, and the log has no gap."""
        known = self.processes.processes.get(process_id)
        self.step(
            "get",
            lambda side: side.storage.processes.get(process_id),
            like(lambda: None if known is None else known.record()),
        )
        if known is not None:
            self.step("log", lambda side: side.storage.events.after(process_id), like(lambda: known.log))

    def pruned(self, before: int) -> set[str]:
        """Prune in the model; machines with more state extend this."""
        return self.processes.prune(before, None)

    def forget_session(self, session_id: str) -> bool:
        self.processes.delete_session(session_id, self.now_ms)
        return super().forget_session(session_id)

    def _created(self, session_id: str, got: CreatedSession | None) -> CreatedSession:
        if session_id not in self.sessions.live:
            self.processes.create_session(session_id)
        return super()._created(session_id, got)


async def _pruned(side: Side, before: int) -> list[str]:
    answer = await side.storage.processes.prune(ended_before_ms=before, through_cursor=None)
    assert not answer.more
    return sorted(answer.pruned_process_ids)
