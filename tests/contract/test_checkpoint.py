"""The contract of checkpoints: the bytes of every component, kept exactly as long as retention says."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from lash.base.compression import BlobRef, Compression
from lash.errors import BlobNotFound, InvalidInput, SessionNotFound
from lash.model.session.checkpoint import EXECUTION_STATE, PLUGIN_SNAPSHOT, TOOL_STATE, CheckpointDraft
from lash.model.session.session import Retention
from lash.stores.session import Session
from lash.testing.harness import Harness
from tests.contract.state import loaded, refuse
from tests.factories.session import commit, created, draft, frame, node

SIZES = (0, 1, 1_023, 1_024, 1_025, 4_095, 4_096, 4_097, 200_000)
"""Sizes around the thresholds of the compression profiles."""


class TestCheckpoint:
    """Laws of checkpoints and their bytes."""

    async def test_components_come_back_whole(self, harness: Harness) -> None:
        """Every component, well-known or not, comes back with its bytes, and so does the snapshot revision."""
        session = await created(await harness.open())
        components = {TOOL_STATE: b"tools", PLUGIN_SNAPSHOT: b"\0\xff" * 3_000, EXECUTION_STATE: b"", "own": b"mine"}
        values = msgspec.structs.replace(draft(2, components), plugin_snapshot_revision=7)
        result = await session.commit(commit(0, checkpoint=values))

        read = await loaded(await harness.open())
        assert read.checkpoint.components == components
        assert read.checkpoint.manifest == result.manifest
        assert read.checkpoint.ref == result.checkpoint_ref == read.head.checkpoint_ref
        assert result.manifest.plugin_snapshot_revision == 7
        assert result.manifest.components == {key: _ref(value) for key, value in components.items()}
        assert await session.checkpoint() == read.checkpoint

    async def test_a_component_given_by_ref_is_kept(self, harness: Harness) -> None:
        """A commit built from the returned manifest keeps every payload; an omitted one is gone."""
        storage = await harness.open()
        session = await created(storage)
        first = await session.commit(commit(0, checkpoint=draft(1, {"a": b"first", "b": b"second"})))
        refs = dict(first.manifest.components)
        await session.commit(commit(1, checkpoint=draft(2, refs)))
        assert (await loaded(storage)).checkpoint.components == {"a": b"first", "b": b"second"}

        await session.commit(commit(2, checkpoint=draft(3, {"b": refs["b"]})))

        assert (await loaded(storage)).checkpoint.components == {"b": b"second"}
        with pytest.raises(BlobNotFound):
            await session.blob(refs["a"])

    async def test_a_ref_works_on_a_fresh_handle(self, harness: Harness) -> None:
        """After closing and reopening, a commit by ref alone still keeps the bytes."""
        first = await (await created(await harness.open())).commit(commit(0, checkpoint=draft(1, {"a": b"bytes"})))
        storage = await harness.reopen()
        await storage.session("s").commit(commit(1, checkpoint=draft(2, dict(first.manifest.components))))
        assert (await loaded(storage)).checkpoint.components == {"a": b"bytes"}

    async def test_a_ref_can_move_to_another_key(self, harness: Harness) -> None:
        """A ref names bytes, not a component: the same bytes may be used under other keys."""
        storage = await harness.open()
        session = await created(storage)
        first = await session.commit(commit(0, checkpoint=draft(1, {"a": b"bytes"})))
        ref = first.manifest.components["a"]
        await session.commit(commit(1, checkpoint=draft(2, {"b": ref, "c": ref})))
        assert (await loaded(storage)).checkpoint.components == {"b": b"bytes", "c": b"bytes"}

    async def test_bytes_that_change_their_place_stay(self, harness: Harness) -> None:
        """Bytes that one commit drops under one key and sends under another are kept, frames included."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, checkpoint=draft(1, {"a": b"bytes"})))
        await session.commit(commit(1, checkpoint=draft(2, {"b": b"bytes"})))
        assert (await loaded(storage)).checkpoint.components == {"b": b"bytes"}
        await session.commit(commit(2, frames=(frame("f", state=b"bytes"),)))
        assert (await loaded(storage)).checkpoint.components == {}
        assert await session.blob(_ref(b"bytes")) == b"bytes"
        await session.commit(commit(3, checkpoint=draft(4, {"c": b"bytes"})))
        assert (await loaded(storage)).checkpoint.components == {"c": b"bytes"}

    async def test_an_unknown_ref_is_refused(self, harness: Harness) -> None:
        """A ref that this session does not hold raises BlobNotFound, even if another session holds it."""
        storage = await harness.open()
        other = await created(storage, "other")
        held = await other.commit(commit(0, session_id="other", checkpoint=draft(1, {"a": b"theirs"})))
        await (await created(storage)).commit(commit(0, node("a")))
        for ref in (_ref(b"held by no session"), held.manifest.components["a"]):
            await refuse(storage, commit(1, node("b", "a"), checkpoint=draft(2, {"a": ref})), BlobNotFound)
            by_frame = msgspec.structs.replace(frame("f"), execution_state_ref=ref)
            await refuse(storage, commit(1, node("b", "a"), frames=(by_frame,)), BlobNotFound)

    async def test_bytes_and_their_ref_in_one_commit(self, harness: Harness) -> None:
        """A ref resolves to bytes that the same commit brings."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, checkpoint=draft(1, {"a": b"bytes", "b": _ref(b"bytes")})))
        assert (await loaded(storage)).checkpoint.components == {"a": b"bytes", "b": b"bytes"}

    @pytest.mark.parametrize("compression", list(Compression))
    async def test_compression_never_shows(self, harness: Harness, compression: Compression) -> None:
        """At every profile and threshold, bytes come back unchanged and their ref is their SHA-256."""
        session = await created(await harness.open(compression=compression))
        components = {str(size): b"lash " * (size // 5) + b"!" * (size % 5) for size in SIZES}
        noise = {f"noise {size}": _noise(size) for size in SIZES}
        result = await session.commit(commit(0, checkpoint=draft(1, components | noise)))
        for key, content in (components | noise).items():
            assert result.manifest.components[key] == _ref(content)
            assert await session.blob(_ref(content)) == content

    async def test_bytes_of_both_forms_live_in_one_session(self, harness: Harness) -> None:
        """Bytes stored under different profiles read the same, and equal bytes have equal refs."""
        plain = await harness.open(compression=Compression.LOW_LATENCY)
        first = await (await created(plain)).commit(commit(0, checkpoint=draft(1, {"a": b"a" * 9_000})))
        packing = await harness.open(compression=Compression.COMPACT)
        values: dict[str, bytes | BlobRef] = {
            "a": first.manifest.components["a"],
            "again": b"a" * 9_000,
            "b": b"b" * 9_000,
        }
        await packing.session("s").commit(commit(1, checkpoint=draft(2, values)))

        read = await loaded(plain)
        assert read.checkpoint.components == {"a": b"a" * 9_000, "again": b"a" * 9_000, "b": b"b" * 9_000}
        assert read.checkpoint.manifest.components["again"] == first.manifest.components["a"]

    async def test_the_same_state_has_the_same_ref(self, harness: Harness) -> None:
        """The checkpoint's ref depends on the state alone, not on its revision, session or handle."""
        storage = await harness.open()
        refs = set()
        for session_id in ("one", "two"):
            session = await created(storage, session_id)
            for revision in range(2):
                values = commit(revision, session_id=session_id, checkpoint=draft(5, {"k": b"x", "a": b"y"}))
                refs.add((await session.commit(values)).checkpoint_ref)
        assert len(refs) == 1
        session = storage.session("one")
        other = await session.commit(commit(2, session_id="one", checkpoint=draft(6, {"k": b"x", "a": b"y"})))
        assert other.checkpoint_ref not in refs

    async def test_only_the_latest_checkpoint_is_kept(self, harness: Harness) -> None:
        """By default a commit drops the previous checkpoint with its unshared bytes; shared bytes stay."""
        storage = await harness.open(retention=Retention.latest())
        session = await _history(await created(storage), 3)
        assert [await _turn_at(session, revision) for revision in range(5)] == [None, None, None, 3, None]
        assert await session.blob(_ref(b"shared")) == b"shared"
        assert await session.blob(_ref(b"only 3")) == b"only 3"
        for gone in (b"only 1", b"only 2"):
            with pytest.raises(BlobNotFound):
                await session.blob(_ref(gone))

    async def test_the_last_checkpoints_are_kept(self, harness: Harness) -> None:
        """With ``last(2)`` two checkpoints can be read with their bytes; older bytes are gone."""
        storage = await harness.open(retention=Retention.last(2))
        session = await _history(await created(storage), 4)
        assert [await _turn_at(session, revision) for revision in range(6)] == [None, None, None, 3, 4, None]
        before = await session.checkpoint(3)
        assert before is not None
        assert before.components == {"shared": b"shared", "own": b"only 3"}
        with pytest.raises(BlobNotFound):
            await session.blob(_ref(b"only 2"))

    async def test_all_checkpoints_are_kept(self, harness: Harness) -> None:
        """With ``all`` every revision's checkpoint can be read, each with its own bytes."""
        storage = await harness.open(retention=Retention.all())
        session = await _history(await created(storage), 5)
        for revision in range(1, 6):
            checkpoint = await session.checkpoint(revision)
            assert checkpoint is not None
            assert (checkpoint.revision, checkpoint.manifest.turn_state.turn_index) == (revision, revision)
            assert checkpoint.components == {"shared": b"shared", "own": f"only {revision}".encode()}

    async def test_a_component_that_comes_and_goes(self, harness: Harness) -> None:
        """A component that is omitted and comes back is in exactly the checkpoints that had it."""
        storage = await harness.open(retention=Retention.all())
        session = await created(storage)
        states: list[dict[str, bytes]] = [{"k": b"one"}, {}, {"k": b"one"}, {"k": b"two"}, {"k": b"one", "l": b"two"}]
        for revision, components in enumerate(states):
            await session.commit(commit(revision, checkpoint=draft(revision, components)))
        for revision, components in enumerate(states, start=1):
            checkpoint = await session.checkpoint(revision)
            assert checkpoint is not None
            assert checkpoint.components == components

    async def test_a_narrower_retention_drops_the_rest(self, harness: Harness) -> None:
        """A storage opened with a smaller retention drops the excess at its next commit."""
        session = await _history(await created(await harness.open(retention=Retention.all())), 4)
        narrow = (await harness.open(retention=Retention.last(1))).session("s")
        assert await _turn_at(narrow, 2) == 2
        await narrow.commit(commit(4, checkpoint=draft(5, {"shared": _ref(b"shared")})))
        assert [await _turn_at(session, revision) for revision in range(1, 6)] == [None, None, None, None, 5]
        with pytest.raises(BlobNotFound):
            await session.blob(_ref(b"only 4"))

    async def test_bytes_of_superseded_frames_are_kept(self, harness: Harness) -> None:
        """The execution state of every frame in the head is kept, and is removed with its frame."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, frames=(frame("f1", state=b"state 1"),), current_frame_id="f1"))
        kept = (await loaded(storage)).frames[0]
        second = frame("f2", previous="f1", state=b"state 2")
        await session.commit(commit(1, frames=(kept, second), current_frame_id="f2"))
        frames = (await loaded(storage)).frames
        assert [await session.blob(BlobRef(str(each.execution_state_ref))) for each in frames] == [
            b"state 1",
            b"state 2",
        ]

        await session.commit(commit(2, frames=frames[1:], current_frame_id="f2"))

        with pytest.raises(BlobNotFound):
            await session.blob(_ref(b"state 1"))
        assert await session.blob(_ref(b"state 2")) == b"state 2"

    async def test_frame_states_are_no_components(self, harness: Harness) -> None:
        """The execution state of a frame does not appear among the checkpoint's components."""
        storage = await harness.open()
        session = await created(storage)
        values = commit(0, frames=(frame("f", state=b"state"),), checkpoint=draft(1, {"k": b"x"}))
        result = await session.commit(values)
        assert set(result.manifest.components) == {"k"}
        assert (await loaded(storage)).checkpoint.components == {"k": b"x"}

    async def test_deleting_one_session_keeps_the_bytes_of_another(self, harness: Harness) -> None:
        """Deleting one of two sessions with identical checkpoints leaves the other whole."""
        storage = await harness.open()
        for session_id in ("one", "two"):
            session = await created(storage, session_id)
            await session.commit(commit(0, session_id=session_id, checkpoint=draft(1, {"k": b"same" * 2_000})))
        await storage.sessions.delete("one")
        assert (await loaded(storage, "two")).checkpoint.components == {"k": b"same" * 2_000}

    async def test_a_turn_names_its_checkpoint(self, harness: Harness) -> None:
        """The checkpoint that a turn left is found by the id of the turn, as long as it and the record are kept."""
        names: list[str] = []
        storage = await harness.open(on_statement=names.append, retention=Retention.last(3))
        session = await created(storage)
        for number in range(3):
            await session.commit(commit(number, turn_id=f"t{number}", checkpoint=draft(number, {"a": b"%d" % number})))
        await session.append([node("n")], turn_id="t3")
        names.clear()
        assert await session.checkpoint(turn_id="t2") == await session.checkpoint(3)
        assert [name for name in names if name in ("checkpoint_load", "commit_turn")] in (
            ["commit_turn", "checkpoint_load", "checkpoint_load"],
            ["commit_turn"],
        )
        assert await session.checkpoint_manifest(turn_id="t1") == await session.checkpoint_manifest(2)
        appended = await session.checkpoint(turn_id="t3")
        assert appended is not None
        assert (appended.revision, appended.components) == (4, {"a": b"2"})
        assert await session.checkpoint(turn_id="t0") is None, "beyond what is kept"
        assert await session.checkpoint(turn_id="unknown") is None
        assert await session.checkpoint_manifest(turn_id="unknown") is None
        await harness.clock.advance(10)
        await storage.maintenance.prune_turns(older_than_ms=1)
        assert await session.checkpoint(turn_id="t2") is None, "its record is gone"
        assert await session.checkpoint(3) is not None

    async def test_a_checkpoint_is_named_in_one_way(self, harness: Harness) -> None:
        """A revision and a turn together are refused, and so is a session that does not exist."""
        storage = await harness.open()
        session = await created(storage)
        with pytest.raises(InvalidInput, match="expected revision or turn_id, got both; leave one out"):
            await session.checkpoint(1, turn_id="t")
        with pytest.raises(InvalidInput, match="turn_id"):
            await session.checkpoint_manifest(turn_id="")
        with pytest.raises(SessionNotFound):
            await storage.session("unknown").checkpoint(turn_id="t")

    async def test_an_empty_draft_is_a_checkpoint(self, harness: Harness) -> None:
        """A commit that saves no state has an empty checkpoint, not a missing one."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, checkpoint=CheckpointDraft()))
        checkpoint = await session.checkpoint(1)
        assert checkpoint is not None
        assert (checkpoint.components, checkpoint.manifest.turn_state.turn_index) == ({}, 0)
        assert await session.checkpoint(2) is None


def _ref(content: bytes) -> BlobRef:
    return BlobRef(hashlib.sha256(content).hexdigest())


def _noise(size: int) -> bytes:
    """Return incompressible bytes, the same in every run."""
    blocks = (hashlib.sha256(b"%d" % number).digest() for number in range(size // 32 + 1))
    return b"".join(blocks)[:size]


async def _history(session: Session, revisions: int) -> Session:
    """Commit this many revisions, each with some bytes of its own and some that all share."""
    for revision in range(1, revisions + 1):
        components = {"shared": b"shared", "own": f"only {revision}".encode()}
        await session.commit(commit(revision - 1, checkpoint=draft(revision, components)))
    return session


async def _turn_at(session: Session, revision: int) -> int | None:
    checkpoint = await session.checkpoint(revision)
    return None if checkpoint is None else checkpoint.manifest.turn_state.turn_index
