"""The contract of lists of processes: filters, pages, and the list of what can run."""

from __future__ import annotations

from typing import Any

import pytest

from lash.errors import InvalidInput
from lash.model.causal import ProcessCause
from lash.model.process.continuation import Continuation
from lash.model.process.process import ProcessFilter, ProcessIdentity, ProcessStatus, Provenance, SessionOriginator
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import listed, opened, refuse
from tests.factories.process import DONE, external, process, process_lease, registered, scope, wait
from tests.factories.session import owner


class TestProcessList:
    """Laws of finding processes."""

    async def test_lists_filter_by_all_that_is_named(self, harness: Harness) -> None:
        """Filters can be combined; definitions are compared as JSON values."""
        storage = await opened(harness)
        made = SessionOriginator(scope=scope("maker", "frame"))
        first = ProcessIdentity(kind="k1", label="one", definition={"a": 1, "b": [2]})
        await storage.processes.register(process("a", identity=first, provenance=Provenance(originator=made)))
        await harness.clock.advance(10)
        await storage.processes.register(
            process("b", identity=ProcessIdentity(kind="k1", label="two"), wake_session_id="woken")
        )
        await harness.clock.advance(10)
        await storage.processes.register(
            process("c", identity=ProcessIdentity(kind="k2", label="one", definition={"a": 1}))
        )
        await storage.processes.complete("c", DONE)
        start = harness.clock.now_ms() - 20
        assert await listed(storage) == ["c", "b", "a"]
        assert await listed(storage, process_id="b") == ["b"]
        assert await listed(storage, process_id="b", label="one") == []
        assert await listed(storage, kind="k1") == ["b", "a"]
        assert await listed(storage, label="one") == ["c", "a"]
        assert await listed(storage, label="one", kind="k1") == ["a"]
        assert await listed(storage, definition={"b": [2], "a": 1}) == ["a"]
        assert await listed(storage, definition={"a": 1}) == ["c"]
        assert await listed(storage, originator_session_id="maker") == ["a"]
        assert await listed(storage, wake_session_id="woken") == ["b"]
        assert await listed(storage, status=ProcessStatus.COMPLETED) == ["c"]
        assert await listed(storage, status=ProcessStatus.RUNNING, label="one") == ["a"]
        assert await listed(storage, created_after_ms=start) == ["c", "b"]
        assert await listed(storage, created_after_ms=start, created_before_ms=start + 20) == ["b"]
        assert await listed(storage, kind="none of them") == []
        cause = Provenance(caused_by=ProcessCause(process_id="c"))
        await storage.processes.register(process("d", provenance=cause))
        assert await listed(storage, parent_process_id="c") == ["d"]
        assert await listed(storage, parent_process_id="c", status=ProcessStatus.FAILED) == []
        assert await listed(storage, parent_process_id="d") == []

    @pytest.mark.parametrize("wanted", [ProcessFilter(), ProcessFilter(status=ProcessStatus.RUNNING)])
    async def test_pages_do_not_overlap(self, harness: Harness, wanted: ProcessFilter) -> None:
        """Pages of any size show every process once, newest first, despite concurrent registrations."""
        storage = await opened(harness)
        ids = [f"p{number}" for number in range(7)]
        await registered(storage, *ids)
        seen: list[str] = []
        page = await storage.processes.list(wanted, limit=3)
        while True:
            seen += [record.process_id for record in page.processes]
            await storage.processes.register(process(f"late{len(seen)}"))
            if page.next_cursor is None:
                break
            page = await storage.processes.list(wanted, limit=3, cursor=page.next_cursor)
        assert seen == ids[::-1]

    async def test_the_work_list(self, harness: Harness) -> None:
        """Running processes are listed by id, waiting ones too; ended, external and leased ones are not."""
        storage = await opened(harness)
        await registered(storage, "c", "a", "leased", "lapsed", "waiting")
        await registered(storage, "ended", outcome=DONE)
        await storage.processes.register(external("elsewhere"))
        await storage.processes.set_wait("waiting", wait())
        process_lease(await storage.process_leases.claim("leased", owner("w"), ttl_ms=100))
        process_lease(await storage.process_leases.claim("lapsed", owner("w"), ttl_ms=50))
        await harness.clock.advance(50)
        assert await _runnable(storage) == ["a", "c", "lapsed", "waiting"]
        assert [record.process_id for record in await storage.processes.runnable(limit=2, after="a")] == ["c", "lapsed"]
        assert [record.process_id for record in await storage.processes.runnable(limit=2, after="lapsed")] == [
            "waiting"
        ]

    @pytest.mark.parametrize(
        "bad",
        [
            {"limit": 0},
            {"limit": 1_001},
            {"limit": True},
            {"cursor": "nonsense"},
            {"cursor": "YzE6MDoz"},
            {"wanted": None},
            {"wanted": ProcessFilter(status="running")},  # type: ignore[arg-type]
            {"wanted": ProcessFilter(waiting=1)},  # type: ignore[arg-type]
            {"wanted": ProcessFilter(definition=float("nan"))},
        ],
    )
    async def test_a_bad_list_is_refused(self, harness: Harness, bad: dict[str, Any]) -> None:
        """Invalid limits, cursors and filters are refused, including a cursor of the feed."""
        storage = await opened(harness)
        await refuse(storage, storage.processes.list(**bad), InvalidInput)


async def _runnable(storage: Storage) -> list[str]:
    return [record.process_id for record in await storage.processes.runnable()]


class TestProcessVersions:
    """Laws of counting processes by their definition."""

    async def test_processes_that_have_not_ended_count_under_their_definition(self, harness: Harness) -> None:
        """Ended and external processes are left out; a process that continued as new is counted as such."""
        storage = await opened(harness)
        assert await storage.processes.versions() == ()
        begun = harness.clock.now_ms()
        for number, (label, version) in enumerate([("b", "1"), ("a", "2"), ("a", "1"), ("a", "2"), ("a", "2")]):
            definition = {"process": label, "version": version}
            identity = ProcessIdentity(kind="python", label=label, definition=definition)
            await storage.processes.register(process(f"p{number}", identity=identity))
            await harness.clock.advance(10)
        await storage.processes.register(process("plain"))
        await storage.processes.register(external("elsewhere"))
        await storage.processes.complete("p4", DONE)
        acquired = process_lease(await storage.process_leases.claim("p3", owner("w"), ttl_ms=1_000))
        await storage.process_leases.continue_as_new(acquired.fence, Continuation(run=2, input={"n": 1}))
        found = await storage.processes.versions()
        assert [(each.name, each.version, each.count, each.continued, each.oldest_at_ms) for each in found] == [
            ("a", "1", 1, 0, begun + 20),
            ("a", "2", 2, 1, begun + 10),
            ("b", "1", 1, 0, begun),
            ("work", None, 1, 0, begun + 50),
        ]
