"""Rules about schedules: cron lines that tick by a clock that jumps."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec
from hypothesis import strategies as st

from lash.model.process.process import HOST, AgentScope, EngineInput, ProcessIdentity, SessionOriginator
from lash.model.session.created import CreatedSession
from lash.model.trigger.schedule import CatchUp, Fired, RegisteredSchedule, Schedule, ScheduleDraft
from lash.model.trigger.trigger import EventPointer, OccurrenceRequest, RegisteredTrigger, TriggerDraft, TriggerOwner
from tests.proof.model.base_rules import SessionLife, session_ids
from tests.proof.model.cron_tables import TABLES, newest_tick, written
from tests.proof.model.expected import like, plain
from tests.proof.model.kit import action
from tests.proof.model.process_model import ProcessModel
from tests.proof.model.schedule_model import ScheduleModel
from tests.proof.model.trigger_model import TriggerModel, name_of
from tests.proof.model.world import Side, World

OWNERS: Final[tuple[TriggerOwner, ...]] = (
    HOST,
    SessionOriginator(scope=AgentScope(session_id="s0")),
    SessionOriginator(scope=AgentScope(session_id="s0", agent_frame_id="f")),
    SessionOriginator(scope=AgentScope(session_id="s1")),
)
SOURCE: Final = "shared"
"""The source of several schedules, so that two of them may mean the same tick."""
LINES: Final = tuple(TABLES)
HOUR_MS: Final = 3_600_000
JUMPS: Final = (60_000, HOUR_MS, 24 * HOUR_MS, 33 * 24 * HOUR_MS, -HOUR_MS, -26 * HOUR_MS)
"""How far clocks jump, in milliseconds: from tick to tick, over many of them, and back over some."""
MOMENTS: Final = (1_711_834_200_000, 1_711_846_800_000, 1_729_985_400_000, 1_729_989_000_000)
"""Around the nights in which clocks were changed in Berlin: 2024-03-30 21:30, 03-31 01:00, 10-26 23:30, 10-27 00:30."""
owners: Final = st.sampled_from((HOST, HOST, HOST, *OWNERS))
keys: Final = st.sampled_from("kkö")
stale: Final = st.sampled_from((0, 0, 0, 1))
drafts: Final = st.builds(
    lambda owner, key, line, catch_up, grace_ms, own, payload: ScheduleDraft(
        owner=owner,
        key=key,
        cron=LINES[line][0],
        time_zone=LINES[line][1],
        catch_up=catch_up,
        grace_ms=grace_ms,
        payload={"n": payload},
        source_key=None if own else SOURCE,
    ),
    owners,
    keys,
    st.sampled_from((0, 0, 0, *range(len(LINES)))),
    st.sampled_from(CatchUp),
    st.sampled_from((1_000, 1_000, 2 * HOUR_MS)),
    st.sampled_from((False, False, True)),
    st.sampled_from((1, 2)),
)


class ScheduleRules(SessionLife):
    """Schedules are created, changed and deleted, and fired by the first worker."""

    LEFT_OUT: ClassVar[frozenset[tuple[str, str]]] = frozenset({("lash_processes", "registration_hash")})

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.processes = ProcessModel()
        self.triggers = TriggerModel(self.processes)
        self.schedules = ScheduleModel(self.triggers)

    def prepare(self) -> None:
        super().prepare()
        self.subscribe()
        often = ScheduleDraft(key="k", cron="*/15 * * * *", source_key=SOURCE, payload={"n": 1})
        self.register(often)
        again = msgspec.structs.replace(often, key="ö", catch_up=CatchUp.SKIP, grace_ms=2 * HOUR_MS, payload={"n": 2})
        self.register(again)
        late = msgspec.structs.replace(often, owner=OWNERS[1], cron="0 * * * *", catch_up=CatchUp.SKIP, grace_ms=1_000)
        self.register(late)

    def subscribe(self) -> None:
        """Start a process for every tick of the shared source."""
        wanted = TriggerDraft(
            owner=HOST,
            key="subscription",
            source_type="cron",
            source_key=SOURCE,
            target=EngineInput(kind="work", payload={}),
            environment_ref="environment",
            identity=ProcessIdentity(kind="work"),
            input_template={"at": EventPointer(path="/scheduled_at")},
        )

        def model(got: RegisteredTrigger | None) -> object:
            made_id = "" if got is None else got.subscription.subscription_id
            return like(lambda: self.triggers.register(wanted, None, made_id, self.now_ms))(got)

        self.step("subscribe", lambda side: side.storage.triggers.register(wanted), model)

    @action(6, wanted=drafts)
    def register(self, wanted: ScheduleDraft) -> None:
        answer = self.step(
            "register",
            lambda side: side.storage.schedules.register(wanted),
            lambda got: _unnamed(self.schedules.register(wanted, self.now_ms), got),
        )
        if answer is not None:
            self.count("register:new" if answer.created else "register:known")

    @action(1, when=lambda self: self.schedules.schedules, which=st.integers(0, 2))
    def register_again(self, which: int) -> None:
        known = [each.draft for each in self.schedules.schedules.values() if each.draft is not None]
        if known:
            self.register(known[which % len(known)])

    @action(5, wanted=drafts, behind=stale)
    def update(self, wanted: ScheduleDraft, behind: int) -> None:
        revision = self._revision(wanted.owner, wanted.key, behind)
        self.step(
            "update",
            lambda side: side.storage.schedules.update(wanted, revision=revision),
            lambda got: _unnamed(self.schedules.update(wanted, revision, self.now_ms), got),
        )

    @action(5, owner=owners, key=keys, enabled=st.booleans(), behind=stale)
    def switch(self, owner: TriggerOwner, key: str, behind: int, *, enabled: bool) -> None:
        revision, name = self._revision(owner, key, behind), name_of(owner, key)

        async def switch(side: Side) -> Schedule:
            store = side.storage.schedules
            return await (store.enable if enabled else store.disable)(owner, key, revision=revision)

        self.step(
            "enable" if enabled else "disable",
            switch,
            lambda got: _unnamed(self.schedules.switch(name, revision, self.now_ms, enabled=enabled), got),
        )

    @action(3, owner=owners, key=keys, behind=stale)
    def remove(self, owner: TriggerOwner, key: str, behind: int) -> None:
        revision, name = self._revision(owner, key, behind), name_of(owner, key)
        self.step(
            "remove",
            lambda side: side.storage.schedules.delete(owner, key, revision=revision),
            lambda _: self.schedules.delete(name, revision, self.now_ms),
        )

    @action(1, session_id=session_ids)
    def remove_owned(self, session_id: str) -> None:
        self.step(
            "remove_owned",
            lambda side: side.storage.schedules.delete_session(session_id),
            lambda _: self.schedules.delete_owned(session_id, self.now_ms),
        )

    @action(1, age=st.sampled_from((-1, 0)))
    def prune(self, age: int) -> None:
        before = self.now_ms - age
        gone = self.step(
            "prune",
            lambda side: side.storage.schedules.prune_deleted(before_ms=before),
            lambda _: self.schedules.prune(before),
        )
        self.count("prune:some" if gone else "prune:none")

    @action(10, limit=st.sampled_from((1, 100, 100)))
    def fire(self, limit: int) -> None:
        fired = self.step(
            "fire",
            lambda side: side.storage.schedules.fire_due(limit=limit),
            lambda got: self._fired(limit, got),
        )
        assert fired is not None
        self.count("fire:some" if fired else "fire:none")
        for each in fired:
            policy = self._policy(each)
            self.count(f"fire:{policy}:{'one' if len(each.ticks) == 1 else 'many' if each.ticks else 'dropped'}")
            if any(tick.report is None for tick in each.ticks):
                self.count("fire:taken")

    @action(1)
    def emit_by_hand(self) -> None:
        """Record another occurrence under the moment of a tick, which then counts as emitted."""
        at = written(newest_tick(LINES[0], self.now_ms) + 900_000)
        request = OccurrenceRequest(source_type="cron", source_key=SOURCE, idempotency_key=at, payload="by hand")
        self.step(
            "emit",
            lambda side: _emitted(side, request),
            lambda _: bool(self.triggers.emit(request, None, self.now_ms)),
        )

    @action(6, milliseconds=st.sampled_from(JUMPS))
    def jump_far(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)
        self.count("jump far back" if milliseconds < 0 else "jump far")

    @action(1, moment_ms=st.sampled_from(MOMENTS))
    def jump_to(self, moment_ms: int) -> None:
        self.world.advance(moment_ms - self.now_ms)
        self.count("jump to a change of clocks")

    @action(3, owner=owners, key=keys, enabled=st.sampled_from((None, True, False)))
    def read(self, owner: TriggerOwner, key: str, *, enabled: bool | None) -> None:
        found = self.schedules.get(name_of(owner, key))
        self.step(
            "get",
            lambda side: side.storage.schedules.get(owner, key),
            lambda got: None if found is None else _unnamed(found.told(), got),
        )
        self.step(
            "list",
            lambda side: _listed(side, enabled=enabled),
            lambda got: _unnamed(self.schedules.listed(enabled=enabled), got),
        )
        self.step(
            "next_fire", lambda side: side.storage.schedules.next_fire_at_ms(), lambda _: self.schedules.next_fire()
        )

    @action(2)
    def look_at_processes(self) -> None:
        """Every tick of the shared source has one process, with the time of the tick."""
        self.step("processes", _process_ids, lambda _: set(self.processes.processes))

    def forget_session(self, session_id: str) -> bool:
        self.schedules.delete_owned(session_id, self.now_ms)
        self.triggers.delete_session(session_id, self.now_ms)
        return super().forget_session(session_id)

    def _created(self, session_id: str, got: CreatedSession | None) -> CreatedSession:
        if session_id not in self.sessions.live:
            self.triggers.sessions.add(session_id)
            self.triggers.deleted_sessions.discard(session_id)
        return super()._created(session_id, got)

    def _fired(self, limit: int, got: tuple[Fired, ...] | None) -> object:
        expected = self.schedules.fire_due(limit, got, self.now_ms)
        return got if got is not None and plain(got) == plain(expected) else expected

    def _policy(self, fired: Fired) -> str:
        found = self.schedules.schedules[fired.owner_session_id or "", fired.key].draft
        assert found is not None
        return found.catch_up.value

    def _revision(self, owner: TriggerOwner, key: str, behind: int) -> int:
        found = self.schedules.get(name_of(owner, key))
        return max(1, (1 if found is None else found.revision) - behind)


def _unnamed(expected: Any, got: Any) -> Any:  # noqa: ANN401 (schedules, alone or in answers)
    """Return the result where it equals the prediction; the name of a schedule's own source is not predicted."""
    return got if got is not None and plain(_blank(got)) == plain(expected) else expected


def _blank(value: Any) -> Any:  # noqa: ANN401 (schedules, alone or in answers)
    if isinstance(value, RegisteredSchedule):
        return msgspec.structs.replace(value, schedule=_blank(value.schedule))
    if isinstance(value, Schedule):
        is_own = value.source_key == value.schedule_id
        return msgspec.structs.replace(value, source_key="" if is_own else value.source_key)
    return [_blank(each) for each in value]


async def _listed(side: Side, *, enabled: bool | None) -> list[Schedule]:
    return list((await side.storage.schedules.list(enabled=enabled)).schedules)


async def _emitted(side: Side, request: OccurrenceRequest) -> bool:
    return bool(await side.storage.occurrences.emit(request))


async def _process_ids(side: Side) -> set[str]:
    found: set[str] = set()
    cursor: str | None = None
    while True:
        page = await side.storage.processes.list(limit=1_000, cursor=cursor)
        found |= {each.process_id for each in page.processes}
        cursor = page.next_cursor
        if cursor is None:
            return found
