"""Rules about the feed of changes: every reader sees every change once, whatever happens meanwhile."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from lash.model.gap import GapReason
from lash.model.process.event import EventDraft, EventPage, ProcessEvent
from lash.model.process.process import ChangeKind, ChangePage, ProcessChange
from tests.proof.model.base_rules import session_ids
from tests.proof.model.expected import like
from tests.proof.model.kit import action
from tests.proof.model.process_life import OUTCOMES, ProcessLife, process_ids
from tests.proof.model.world import Side, World


@dataclasses.dataclass
class Reader:
    """A reader of the feed: the cursor as the storage gave it, and how many changes lie before it."""

    cursor: str | None = None
    place: int = 0


class FeedRules(ProcessLife):
    """Changes of processes, and readers that come and go at their own pace."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.readers = [Reader(), Reader()]

    @action(6, process_id=process_ids)
    def note(self, process_id: str) -> None:
        draft = EventDraft(event_type="note")
        self.step(
            "append",
            lambda side: _appended(side, process_id, draft),
            lambda _: self.processes.append(process_id, draft, self.now_ms).event.sequence,
        )

    @action(5, process_id=process_ids)
    def end(self, process_id: str) -> None:
        self.complete(process_id, OUTCOMES[0])

    @action(8, which=st.integers(0, 1), limit=st.sampled_from((1, 2, 100, 100)))
    def follow(self, which: int, limit: int) -> None:
        reader = self.readers[which]
        page = self.step(
            "changes",
            lambda side: side.storage.events.changes(side.own(reader.cursor), limit=limit),
            lambda got: self._changes(reader, limit, got),
        )
        assert page is not None
        reader.place = self._start(reader) + len(page.changes)
        reader.cursor = page.cursor
        self.count("changes:some" if page.changes else "changes:none")

    @action(4, which=st.integers(0, 1), limit=st.sampled_from((1, 2, 100)))
    def tail(self, which: int, limit: int) -> None:
        reader = self.readers[which]
        places = self._events(reader)[:limit]
        page = self.step(
            "tail",
            lambda side: side.storage.events.tail(side.own(reader.cursor), limit=limit),
            like(lambda: self._tail(reader, places)),
        )
        assert page is not None
        if places:
            reader.place, reader.cursor = places[-1] + 1, page.cursor
        self.count("tail:some" if page.events else "tail:none")

    @action(1, which=st.integers(0, 1))
    def begin_anew(self, which: int) -> None:
        self.readers[which] = Reader()

    @action(6, which=st.integers(0, 1))
    def prune_behind(self, which: int) -> None:
        """Prune what one reader has seen; a reader behind it goes on where the feed now begins."""
        cursor, place = self.readers[which].cursor, self.readers[which].place
        if cursor is None:
            return
        before = self.now_ms + 1
        known = len(self.processes.feed)
        pruned = self.step(
            "prune_behind",
            lambda side: _pruned(side, before, side.own(cursor)),
            lambda _: sorted(self.processes.prune(before, place)),
        )
        self.count("prune_behind:some" if pruned else "prune_behind:none")
        self._adopt_order(known)

    @action(2, session_id=session_ids)
    def detach(self, session_id: str) -> None:
        before = len(self.processes.feed)
        self.step(
            "detach",
            lambda side: _detached(side, session_id),
            lambda _: self.processes.detach_session(session_id, self.now_ms),
        )
        self._adopt_order(before)

    @action(6, age=st.just(-1))
    def prune(self, age: int) -> None:
        """Prune as if the feed had no readers: existing readers get an error."""
        before = len(self.processes.feed)
        super().prune(age)
        self._adopt_order(before)

    @action(1, session_id=session_ids)
    def delete(self, session_id: str) -> None:
        before = len(self.processes.feed)
        super().delete(session_id)
        self._adopt_order(before)

    def _adopt_order(self, before: int) -> None:
        """Copy the order of the changes of one operation: it is not predicted, nor the same everywhere."""
        told = len(self.processes.feed) - before
        if told > 1:
            self.step("feed", lambda side: _last_changes(side, told), lambda got: self._adopt(before, got))

    def _adopt(self, before: int, got: list[ProcessChange] | None) -> list[ProcessChange]:
        lives = dict(zip(self.processes.feed[before:], self.processes.feed_lives[before:], strict=True))
        if got is None or set(got) != set(lives):
            return self.processes.feed[before:]
        self.processes.feed[before:] = got
        self.processes.feed_lives[before:] = [lives[change] for change in got]
        return got

    def _start(self, reader: Reader) -> int:
        return max(reader.place, self.processes.feed_floor)

    def _changes(self, reader: Reader, limit: int, got: ChangePage | None) -> ChangePage:
        start = self._start(reader)
        cursor = "" if got is None else got.cursor
        changes = tuple(self.processes.feed[start : start + limit])
        return ChangePage(changes=changes, cursor=cursor, gap=self._gap(reader))

    def _gap(self, reader: Reader) -> GapReason | None:
        """Return the gap of a reader whose cursor is from before pruned changes."""
        is_behind = reader.cursor is not None and reader.place < self.processes.feed_floor
        return GapReason.TRIMMED if is_behind else None

    def _events(self, reader: Reader) -> list[int]:
        """Return the positions in the feed of the events before a reader's cursor, of processes that still exist."""
        model = self.processes
        return [
            place
            for place in range(self._start(reader), len(model.feed))
            if model.feed[place].kind is ChangeKind.EVENT and model.feed_lives[place] in model.processes.values()
        ]

    def _tail(self, reader: Reader, places: list[int]) -> EventPage:
        events: list[ProcessEvent] = []
        for place in places:
            sequence = self.processes.feed[place].sequence
            assert sequence is not None
            events.append(self.processes.feed_lives[place].log[sequence - 1])
        return EventPage(events=tuple(events), cursor="", gap=self._gap(reader))


async def _appended(side: Side, process_id: str, draft: EventDraft) -> int:
    return (await side.storage.events.append(process_id, draft)).event.sequence


async def _pruned(side: Side, before: int, cursor: str) -> list[str]:
    answer = await side.storage.processes.prune(ended_before_ms=before, through_cursor=cursor)
    return sorted(answer.pruned_process_ids)


async def _detached(side: Side, session_id: str) -> int:
    return (await side.storage.grants.detach_session(session_id)).cleared_wake_target_count


async def _last_changes(side: Side, count: int) -> list[ProcessChange]:
    return list((await side.storage.events.changes(limit=1_000)).changes[-count:])
