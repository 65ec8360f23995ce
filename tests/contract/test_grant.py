"""The contract of grants: they show processes to sessions and change nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from lash.errors import GrantNotFound, InvalidInput
from lash.model.process.process import Grant, GrantEntry, ProcessStatus, SessionDetached, Success
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import feed, log, opened, refuse, world
from tests.factories.process import DONE, GO, granted, process, registered, scope, stored, wait
from tests.factories.session import created


class TestGrant:
    """Laws of granting, revoking, moving and listing."""

    async def test_a_grant_comes_and_goes(self, harness: Harness) -> None:
        """A process has no grants at first; a grant shows it until it is revoked."""
        storage = await opened(harness)
        await registered(storage)
        assert not await storage.grants.has(scope("s"), "p")
        assert await storage.grants.of_process("p") == ()
        given = granted("s", kind="tool", label="mine")
        assert await storage.grants.grant(given) == given
        assert await (await harness.open()).grants.has(scope("s"), "p")
        assert await storage.grants.list(scope("s")) == (GrantEntry(grant=given, record=await stored(storage)),)
        assert [await storage.grants.revoke(scope("s"), "p") for _ in range(2)] == [True, False]
        assert not await storage.grants.has(scope("s"), "p")
        assert await storage.grants.list(scope("s")) == ()

    async def test_granting_changes_no_process(self, harness: Harness) -> None:
        """Granting appends no event, changes no record and is not in the change feed."""
        storage = await opened(harness)
        await registered(storage, "p", "q")
        before = await _records(storage)
        await storage.grants.grant(granted("s"))
        await storage.grants.grant(granted("s", "q"))
        await storage.grants.transfer(scope("s"), scope("t"), ["p", "q"])
        await storage.grants.revoke(scope("t"), "p")
        assert await _records(storage) == before
        assert len((await feed(storage))[0]) == 2

    async def test_granting_again_replaces(self, harness: Harness) -> None:
        """Granting again replaces kind and label; there is still one grant."""
        storage = await opened(harness)
        await registered(storage)
        await storage.grants.grant(granted("s", kind="old", label="old"))
        await storage.grants.grant(granted("s", kind="new"))
        assert await storage.grants.of_process("p") == (granted("s", kind="new"),)

    async def test_unusual_revocations(self, harness: Harness) -> None:
        """Revoking a grant that does not exist, even of an unknown process, returns False."""
        storage = await opened(harness)
        assert await storage.grants.revoke(scope("s"), "never") is False
        assert await storage.grants.has(scope("s"), "never") is False
        assert await storage.grants.list(scope("missing")) == ()

    async def test_a_frame_is_a_scope_of_its_own(self, harness: Harness) -> None:
        """A frame's grant is not the session's, nor another frame's; unusual ids do not mix them up."""
        storage = await opened(harness)
        await registered(storage)
        await storage.grants.grant(granted("s", frame="f"))
        assert await storage.grants.has(scope("s", "f"), "p")
        for other in (scope("s"), scope("s", "g"), scope("s/frame:f"), scope("t", "f")):
            assert not await storage.grants.has(other, "p")
            assert await storage.grants.list(other) == ()

    async def test_several_sessions_see_one_process(self, harness: Harness) -> None:
        """Grants of a process are listed by session and frame."""
        storage = await opened(harness)
        await registered(storage)
        given = [granted("a"), granted("a", frame="f"), granted("a", frame="g"), granted("b")]
        for each in (given[3], given[1], given[0], given[2]):
            await storage.grants.grant(each)
        assert await storage.grants.of_process("p") == tuple(given)

    async def test_lists_show_the_running_or_all(self, harness: Harness) -> None:
        """Both lists are ordered by process id; the live one leaves ended processes out."""
        storage = await opened(harness)
        await registered(storage, "c", "a")
        await registered(storage, "b", outcome=DONE)
        for name in ("c", "b", "a"):
            await storage.grants.grant(granted("s", name))
        assert await _listed(storage, live_only=False) == ["a", "b", "c"]
        assert await _listed(storage, live_only=True) == ["a", "c"]
        assert await storage.grants.has(scope("s"), "b")

    async def test_a_transfer_keeps_kind_and_label(self, harness: Harness) -> None:
        """A moved grant is gone from its old scope and replaces any grant in the new one."""
        storage = await opened(harness)
        await registered(storage, "p", "q")
        await storage.grants.grant(granted("s", "p", kind="k", label="l"))
        await storage.grants.grant(granted("s", "q"))
        await storage.grants.grant(granted("t", "p", kind="old", label="old"))
        await storage.grants.transfer(scope("s"), scope("t"), ["p"])
        assert await storage.grants.of_process("p") == (granted("t", kind="k", label="l"),)
        assert await storage.grants.of_process("q") == (granted("s", "q"),)

    async def test_a_transfer_to_oneself_or_of_nothing_changes_nothing(self, harness: Harness) -> None:
        """A transfer to the same scope, or of no ids, changes nothing."""
        storage = await opened(harness)
        await registered(storage)
        await storage.grants.grant(granted("s", kind="k"))
        before = await world(storage)
        await storage.grants.transfer(scope("s"), scope("s"), ["p"])
        await storage.grants.transfer(scope("s"), scope("t"), [])
        assert await world(storage) == before

    async def test_a_transfer_is_all_or_nothing(self, harness: Harness) -> None:
        """One missing grant among many, even the last, moves none of them."""
        storage = await opened(harness)
        await registered(storage, "a", "b", "c")
        for name in ("a", "b"):
            await storage.grants.grant(granted("s", name))
        for missing in ("c", "never"):
            call = storage.grants.transfer(scope("s"), scope("t"), ["a", "b", missing])
            await refuse(storage, call, GrantNotFound, naming=missing)
        frame = storage.grants.transfer(scope("s", "f"), scope("t"), ["a"])
        await refuse(storage, frame, GrantNotFound, naming="a")

    @pytest.mark.parametrize("ids", ["p", ["p", "p"], [""], [5], None])
    async def test_bad_ids_move_nothing(self, harness: Harness, ids: Any) -> None:  # noqa: ANN401
        """A process named twice, a single text, or an invalid id is refused."""
        storage = await opened(harness)
        await registered(storage)
        await storage.grants.grant(granted("s"))
        await refuse(storage, storage.grants.transfer(scope("s"), scope("t"), ids), InvalidInput)

    @pytest.mark.parametrize("bad", [{"session_id": ""}, {"session_id": None}, {"agent_frame_id": ""}])
    async def test_a_bad_scope_is_refused(self, harness: Harness, bad: dict[str, Any]) -> None:
        """An invalid scope is refused by every call that takes one."""
        storage = await opened(harness)
        await registered(storage)
        false = msgspec.structs.replace(scope("s"), **bad)
        for call in (
            storage.grants.grant(Grant(scope=false, process_id="p")),
            storage.grants.revoke(false, "p"),
            storage.grants.transfer(false, scope("t"), ["p"]),
            storage.grants.transfer(scope("s"), false, ["p"]),
            storage.grants.list(false),
            storage.grants.has(false, "p"),
        ):
            await refuse(storage, call, InvalidInput)

    async def test_racing_transfers_move_a_grant_once(self, harness: Harness) -> None:
        """Of concurrent transfers of one grant to several sessions one succeeds, leaving one grant."""
        storages = [await harness.open() for _ in range(3)]
        await registered(storages[0])
        await storages[0].grants.grant(granted("s", kind="k"))
        answers = await asyncio.gather(
            *(each.grants.transfer(scope("s"), scope(f"t{index}"), ["p"]) for index, each in enumerate(storages)),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers if answer is not None] == [GrantNotFound] * 2
        (left,) = await storages[0].grants.of_process("p")
        assert (left.kind, left.scope.session_id) == ("k", f"t{answers.index(None)}")


class TestDetach:
    """Laws of what the end of a session means for processes."""

    async def test_the_report_tells_what_was_cut(self, harness: Harness) -> None:
        """All grants go; running processes are reported as orphaned or preserved; other sessions' grants stay."""
        storage = await _three(harness)
        report = await storage.grants.detach_session("s")
        assert report == SessionDetached(
            session_id="s",
            revoked_grant_count=3,
            orphaned_process_ids=("sole",),
            preserved_process_ids=("shared",),
        )
        assert await storage.grants.list(scope("s")) == ()
        assert await storage.grants.of_process("shared") == (granted("t", "shared"),)

    async def test_detaching_again_reports_nothing(self, harness: Harness) -> None:
        """Detaching again, or a session that never existed, reports nothing."""
        storage = await _three(harness)
        await storage.grants.detach_session("s")
        before = await world(storage)
        assert await storage.grants.detach_session("s") == SessionDetached(session_id="s")
        assert await storage.grants.detach_session("never") == SessionDetached(session_id="never")
        assert await world(storage) == before

    async def test_every_frame_is_covered(self, harness: Harness) -> None:
        """Grants of all frames go; a process that only this session saw is orphaned once."""
        storage = await opened(harness)
        await registered(storage)
        for frame in (None, "f", "g"):
            await storage.grants.grant(granted("s", frame=frame))
        report = await storage.grants.detach_session("s")
        assert (report.revoked_grant_count, report.orphaned_process_ids) == (3, ("p",))
        assert await storage.grants.of_process("p") == ()

    async def test_wake_targets_are_cleared(self, harness: Harness) -> None:
        """No process, ended ones included, targets the session any more; others keep their target."""
        storage = await opened(harness)
        for name, target in (("runs", "s"), ("ended", "s"), ("other", "t")):
            await storage.processes.register(process(name, wake_session_id=target))
        await storage.processes.complete("ended", DONE)
        await harness.clock.advance(5)
        report = await storage.grants.detach_session("s")
        assert (report.cleared_wake_target_count, report.revoked_grant_count) == (2, 0)
        records = {name: await stored(storage, name) for name in ("runs", "ended", "other")}
        assert {name: record.wake_session_id for name, record in records.items()} == {
            "runs": None,
            "ended": None,
            "other": "t",
        }
        assert records["runs"].updated_at_ms == harness.clock.now_ms()

    async def test_nothing_is_cancelled(self, harness: Harness) -> None:
        """No event is appended; a waiting process keeps waiting, and a later signal still ends it."""
        storage = await opened(harness)
        await storage.processes.register(process("p", GO, wake_session_id="s"))
        await storage.grants.grant(granted("s"))
        await storage.processes.set_wait("p", wait())
        await storage.grants.detach_session("s")
        record = await stored(storage)
        assert (record.status, record.projection.wait) == (ProcessStatus.RUNNING, wait())
        assert len(await log(storage)) == 1
        await storage.events.signal("p", "go", signal_id="1")
        assert (await storage.processes.complete("p", Success())).is_terminal

    async def test_deleting_a_session_detaches_it(self, harness: Harness) -> None:
        """Deleting a session detaches its processes in the same transaction."""
        storage = await opened(harness)
        await created(storage)
        await storage.processes.register(process("p", wake_session_id="s"))
        await storage.grants.grant(granted("s"))
        await storage.grants.grant(granted("t"))
        await storage.sessions.delete("s")
        assert await storage.grants.of_process("p") == (granted("t"),)
        assert (await stored(storage)).wake_session_id is None
        assert await storage.grants.detach_session("s") == SessionDetached(session_id="s")


async def _listed(storage: Storage, *, live_only: bool) -> list[str]:
    entries = await storage.grants.list(scope("s"), live_only=live_only)
    return [entry.record.process_id for entry in entries]


async def _records(storage: Storage) -> list[object]:
    return [await stored(storage, name) for name in ("p", "q")]


async def _three(harness: Harness) -> Storage:
    """Return a storage in which session ``s`` sees three processes: its own, a shared one, an ended one."""
    storage = await opened(harness)
    await registered(storage, "sole", "shared")
    await registered(storage, "ended", outcome=DONE)
    for name in ("sole", "shared", "ended"):
        await storage.grants.grant(granted("s", name))
    await storage.grants.grant(granted("t", "shared"))
    return storage
