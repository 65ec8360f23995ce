"""Rules of schedules: what a row means, and how it changes."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from lash.errors import CorruptData, InvalidInput, ScheduleConflict, ScheduleNotFound
from lash.model.process.process import HOST, AgentScope, SessionOriginator
from lash.model.trigger.schedule import CatchUp, Fired, FiredTick, ScheduleDraft
from lash.model.trigger.trigger import EmitReport
from lash.plan.trigger.schedule import (
    DueRow,
    ScheduleChange,
    ScheduleRow,
    Target,
    check_revision,
    check_schedule,
    check_target,
    check_wanted_owner,
    decode_schedule,
    decode_schedule_cursor,
    decode_schedule_page,
    fired,
    found_schedule,
    plan_deletion,
    plan_registration,
    plan_switch,
    plan_ticks,
    plan_update,
    target_of,
    unreadable,
)
from lash.plan.trigger.tick import Moment
from tests.rules.kit import sha256

HOUR = 3_600_000
NOON = 1_780_315_200_000
"""2026-06-01T12:00:00Z."""
HOURLY = ScheduleDraft(key="k", cron="0 * * * *", payload={"a": 1})
OF_SESSION = SessionOriginator(scope=AgentScope(session_id="s", agent_frame_id="f"))
BODY = '{"key":"k","cron":"0 * * * *","payload":{"a":1}}'
HOST_K = "schedule:05058d02e8dfdd8eee369a12220d371c6a37146802066d346a9624f52d391d17"

SESSION_K = "schedule:" + sha256(b'lash.schedule.v1\0["s","k"]')


def stored(**changes: object) -> ScheduleRow:
    """Return the row of the hourly schedule, enabled and due at noon."""
    row = ScheduleRow(7, "", "k", BODY, True, 3, NOON, NOON, NOON - HOUR, 5, 6)
    return msgspec.structs.replace(row, **changes)


GONE = stored(definition=None, enabled=False, next_tick_ms=None, next_fire_ms=None)


class TestCheck:
    """Rules of input."""

    def test_a_draft_comes_back_with_members_of_enums(self) -> None:
        """Texts that name a policy become its member."""
        given = msgspec.structs.replace(HOURLY, catch_up="all")
        assert check_schedule(given).catch_up is CatchUp.ALL
        assert check_schedule(HOURLY) == HOURLY

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"key": " "}, "key"),
            ({"key": "x" * 256}, "key"),
            ({"owner": "host"}, "schedule 'k'"),
            ({"owner": SessionOriginator(scope=AgentScope(session_id=""))}, "session_id"),
            ({"cron": "0 0 31 2 *"}, "cron"),
            ({"time_zone": "Nowhere"}, "time zone"),
            ({"catch_up": "some"}, "catch_up"),
            ({"grace_ms": 999}, "grace_ms"),
            ({"jitter_ms": -1}, "jitter_ms"),
            ({"jitter_ms": 86_400_001}, "jitter_ms"),
            ({"payload": {"scheduled_at": 1}}, "scheduled_at"),
            ({"payload": {"x": "y" * 65_536}}, "characters"),
            ({"payload": [1]}, "payload"),
            ({"payload": {"x": float("nan")}}, "payload"),
            ({"source_key": ""}, "source_key"),
        ],
    )
    def test_what_is_refused(self, changes: dict[str, Any], named: str) -> None:
        """The error names the fault."""
        with pytest.raises(InvalidInput, match=named):
            check_schedule(msgspec.structs.replace(HOURLY, **changes))

    def test_the_largest_that_is_accepted(self) -> None:
        """A jitter of a day, the shortest grace, and a definition of the maximum length are accepted."""
        bounds = msgspec.structs.replace(HOURLY, jitter_ms=86_400_000, grace_ms=1_000)
        assert check_schedule(bounds) == bounds
        room = 65_536 - len('{"key":"k","cron":"0 * * * *","payload":{"x":""}}')
        longest = msgspec.structs.replace(HOURLY, payload={"x": "y" * room})
        assert check_schedule(longest) == longest
        with pytest.raises(InvalidInput, match="65,537 characters"):
            check_schedule(msgspec.structs.replace(HOURLY, payload={"x": "y" * (room + 1)}))

    def test_only_drafts_are_drafts(self) -> None:
        """Anything else is refused with its type."""
        with pytest.raises(InvalidInput, match="expected a ScheduleDraft, got dict"):
            check_schedule({"key": "k"})

    def test_targets(self) -> None:
        """A session is stored by its id, the host as empty."""
        assert check_target(HOST, "k") == ("", "k")
        assert check_target(OF_SESSION, "k") == ("s", "k")
        assert target_of(HOURLY) == ("", "k")
        assert check_wanted_owner(None) is None
        assert check_wanted_owner(HOST) == ""
        assert DueRow(1, "s", "k").target == Target("s", "k")
        with pytest.raises(InvalidInput, match="owner"):
            check_target("s", "k")
        with pytest.raises(InvalidInput, match="key"):
            check_target(HOST, "")

    @pytest.mark.parametrize("revision", [0, -1, "1", None, True, 2**63])
    def test_revisions(self, revision: object) -> None:
        """An invalid revision is refused."""
        with pytest.raises(InvalidInput, match="revision"):
            check_revision(revision)
        assert check_revision(1) == 1


class TestRow:
    """Rules of rows."""

    def test_a_schedule(self) -> None:
        """The row has every field; the source is the schedule's own unless it names another."""
        schedule = found_schedule(stored())
        assert (schedule.schedule_id, schedule.source_key) == (HOST_K, HOST_K)
        assert (schedule.definition, schedule.enabled, schedule.revision) == (HOURLY, True, 3)
        assert (schedule.owner, schedule.key) == (HOST, "k")
        assert (schedule.next_tick_ms, schedule.next_fire_ms, schedule.last_tick_ms) == (NOON, NOON, NOON - HOUR)
        assert (schedule.created_at_ms, schedule.updated_at_ms) == (5, 6)
        named = decode_schedule(stored(definition=BODY[:-1] + ',"source_key":"mine"}'))
        assert named is not None
        assert (named.schedule_id, named.source_key) == (HOST_K, "mine")

    def test_what_was_deleted(self) -> None:
        """A tombstone decodes to no schedule."""
        assert decode_schedule(GONE) is None
        with pytest.raises(ScheduleNotFound, match="the host has no schedule 'k'"):
            found_schedule(GONE)

    def test_damage_is_named(self) -> None:
        """An unreadable definition is damage, not absence."""
        with pytest.raises(CorruptData, match="schedule 'k' of session 's'"):
            decode_schedule(stored(owner_session_id="s", definition="{"))

    def test_pages(self) -> None:
        """A full page has a cursor behind its last row; damaged rows are listed by id."""
        rows = [stored(key="a"), stored(definition="{"), stored(key="z")]
        page = decode_schedule_page(rows, 2)
        assert (len(page.schedules), page.damaged) == (1, (HOST_K,))
        assert decode_schedule_cursor(page.next_cursor) == ("", "k")
        last = decode_schedule_page(rows, 3)
        assert (len(last.schedules), last.next_cursor) == (2, None)
        assert decode_schedule_page([], 3).schedules == ()
        four = [stored(key=key) for key in "abcd"]
        assert decode_schedule_cursor(decode_schedule_page(four, 3).next_cursor) == ("", "c")
        assert decode_schedule_cursor(None) == ("", "")

    @pytest.mark.parametrize("cursor", ["x", "%%%", base64.urlsafe_b64encode(b'["a"]').decode(), "ä", 5])
    def test_wrong_cursors(self, cursor: object) -> None:
        """An invalid cursor is refused."""
        with pytest.raises(InvalidInput, match="cursor"):
            decode_schedule_cursor(cursor)


class TestChange:
    """Compare-and-set, and where ticks continue."""

    def test_the_first_tick_is_the_next_one_after_now(self) -> None:
        """A new schedule does not fire for the moment at which it is registered."""
        assert plan_registration(HOURLY, None, NOON) == ScheduleChange(
            owner_session_id="",
            key="k",
            definition=BODY,
            enabled=True,
            expected_revision=0,
            expected_last_tick_ms=None,
            next=Moment(NOON + HOUR, NOON + HOUR),
            created_at_ms=NOON,
            now_ms=NOON,
        )

    def test_a_schedule_needs_the_session_that_it_belongs_to(self) -> None:
        """A schedule of the host needs no session, and neither does a deletion, whose session may be gone."""
        of_host = plan_registration(HOURLY, None, NOON)
        of_session = plan_registration(msgspec.structs.replace(HOURLY, owner=OF_SESSION), None, NOON)
        assert of_host is not None
        assert of_session is not None
        deleted = msgspec.structs.replace(of_session, definition=None)
        needed = [each.required_session_id for each in (of_host, of_session, deleted)]
        assert needed == [None, "s", None]

    def test_registering_again(self) -> None:
        """An equal definition from any frame is kept; another one is a conflict."""
        assert plan_registration(HOURLY, stored(), NOON) is None
        assert plan_registration(HOURLY, stored(enabled=False, next_tick_ms=None, next_fire_ms=None), NOON) is None
        of_session = msgspec.structs.replace(HOURLY, owner=OF_SESSION)
        whole = msgspec.structs.replace(HOURLY, owner=SessionOriginator(scope=AgentScope(session_id="s")))
        first = plan_registration(of_session, None, NOON)
        assert first is not None
        assert first.owner_session_id == "s"
        assert plan_registration(whole, stored(owner_session_id="s", definition=first.definition), NOON) is None
        for other in ({"cron": "1 * * * *"}, {"payload": {"a": True}}, {"payload": {"a": 1.0}}, {"jitter_ms": 1}):
            with pytest.raises(ScheduleConflict, match="'k' of the host has another definition"):
                plan_registration(msgspec.structs.replace(HOURLY, **other), stored(), NOON)

    def test_registering_what_was_deleted(self) -> None:
        """The new schedule continues from the revision and the last tick of the deleted one."""
        change = plan_registration(HOURLY, msgspec.structs.replace(GONE, last_tick_ms=NOON + HOUR), NOON)
        assert change is not None
        assert (change.expected_revision, change.created_at_ms) == (3, NOON)
        assert change.next == Moment(NOON + 2 * HOUR, NOON + 2 * HOUR), "a tick would be repeated"

    def test_updating(self) -> None:
        """The next tick is that of the new line after now; an equal definition changes nothing."""
        other = msgspec.structs.replace(HOURLY, cron="30 * * * *")
        change = plan_update(other, stored(), 3, NOON)
        assert change is not None
        assert (change.next, change.created_at_ms, change.enabled) == (
            Moment(NOON + HOUR // 2, NOON + HOUR // 2),
            5,
            True,
        )
        assert (change.expected_revision, change.expected_last_tick_ms) == (3, NOON - HOUR)
        disabled = plan_update(other, stored(enabled=False, next_tick_ms=None, next_fire_ms=None), 3, NOON)
        assert disabled is not None
        assert (disabled.enabled, disabled.next) == (False, None)
        assert plan_update(HOURLY, stored(), 3, NOON) is None

    def test_switching(self) -> None:
        """A disabled schedule has no next tick; an enabled one has one after now."""
        off = plan_switch(Target("", "k"), stored(), 3, NOON, enabled=False)
        assert off is not None
        assert (off.enabled, off.next, off.definition) == (False, None, BODY)
        resting = stored(enabled=False, next_tick_ms=None, next_fire_ms=None)
        on = plan_switch(Target("", "k"), resting, 3, NOON + 1, enabled=True)
        assert on is not None
        assert (on.enabled, on.next) == (True, Moment(NOON + HOUR, NOON + HOUR))
        assert plan_switch(Target("", "k"), stored(), 3, NOON, enabled=True) is None
        assert plan_switch(Target("", "k"), resting, 3, NOON, enabled=False) is None

    def test_deleting(self) -> None:
        """An unreadable schedule can be deleted, and its numbers are kept."""
        damaged = stored(owner_session_id="s", definition="{")
        assert plan_deletion(Target("s", "k"), damaged, 3, NOON) == ScheduleChange(
            owner_session_id="s",
            key="k",
            definition=None,
            enabled=False,
            expected_revision=3,
            expected_last_tick_ms=NOON - HOUR,
            next=None,
            created_at_ms=5,
            now_ms=NOON,
        )

    @pytest.mark.parametrize("row", [None, GONE])
    def test_what_is_not_there(self, row: ScheduleRow | None) -> None:
        """An unknown or deleted schedule cannot be changed."""
        with pytest.raises(ScheduleNotFound, match="the host has no schedule 'k'"):
            plan_update(HOURLY, row, 3, NOON)
        with pytest.raises(ScheduleNotFound, match="the host has no schedule 'k'"):
            plan_switch(Target("", "k"), row, 3, NOON, enabled=True)
        with pytest.raises(ScheduleNotFound, match="the host has no schedule 'k'"):
            plan_deletion(Target("", "k"), row, 3, NOON)

    @pytest.mark.parametrize("revision", [2, 4])
    def test_another_revision(self, revision: int) -> None:
        """A conflict names both revisions."""
        with pytest.raises(ScheduleConflict, match=f"is at revision 3, the caller expected {revision}"):
            plan_update(HOURLY, stored(), revision, NOON)
        with pytest.raises(ScheduleConflict, match=f"is at revision 3, the caller expected {revision}"):
            plan_switch(Target("", "k"), stored(), revision, NOON, enabled=True)
        with pytest.raises(ScheduleConflict, match=f"is at revision 3, the caller expected {revision}"):
            plan_deletion(Target("", "k"), stored(), revision, NOON)


class TestTicks:
    """Rules of emission."""

    def test_a_tick_is_an_occurrence(self) -> None:
        """Its key is the time of the tick; its payload is the schedule's with that time."""
        plan = plan_ticks(stored(), NOON + 5)
        assert plan is not None
        [(tick, encoded)] = plan.occurrences
        assert tick == NOON
        assert msgspec.to_builtins(encoded.request) == {
            "source_type": "cron",
            "source_key": HOST_K,
            "idempotency_key": "2026-06-01T12:00:00Z",
            "payload": {"a": 1, "scheduled_at": "2026-06-01T12:00:00Z"},
        }
        assert (plan.last_tick_ms, plan.next) == (NOON, Moment(NOON + HOUR, NOON + HOUR))

    def test_what_is_not_due(self) -> None:
        """Before its time, and while disabled, nothing is emitted."""
        assert plan_ticks(stored(), NOON - 1) is None
        assert plan_ticks(stored(next_fire_ms=NOON + 1), NOON) is None
        assert plan_ticks(stored(enabled=False, next_tick_ms=None, next_fire_ms=None), NOON) is None

    def test_reports(self) -> None:
        """A report has the schedule, the emitted ticks, and the next one."""
        plan = plan_ticks(stored(), NOON)
        assert plan is not None
        tick = FiredTick(tick_ms=NOON, report=EmitReport(occurrence_id="o"))
        assert fired(plan, [tick]) == Fired(schedule_id=HOST_K, key="k", ticks=(tick,), next_fire_ms=NOON + HOUR)
        ended = msgspec.structs.replace(plan, next=None)
        assert fired(ended, []).next_fire_ms is None
        report = unreadable(Target("s", "k"), InvalidInput("no such zone"), NOON)
        assert report == Fired(
            schedule_id=SESSION_K, owner_session_id="s", key="k", next_fire_ms=NOON, problem="no such zone"
        )
        assert unreadable(Target("", "k"), InvalidInput("x"), NOON).owner_session_id is None

    def test_a_report_names_the_session(self) -> None:
        """The report of a session's schedule has the session's id."""
        body = '{"owner":{"type":"session","scope":{"session_id":"s"}},' + BODY[1:]
        plan = plan_ticks(stored(owner_session_id="s", definition=body), NOON)
        assert plan is not None
        report = fired(plan, [])
        assert (report.schedule_id, report.owner_session_id) == (SESSION_K, "s")
