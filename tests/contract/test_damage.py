"""Stored rows that contradict themselves are reported as damage: never as absence, never as success."""

from __future__ import annotations

import pytest

import lash
from tests.factories.session import chain, commit, draft, node, spent
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


async def _prepare(url: str) -> lash.model.Commit:
    """Commit one turn and return it."""
    async with await lash.open(url) as storage:
        revision = (await storage.sessions.create("s")).revision
        turn = commit(
            revision, node("a"), turn_id="t", checkpoint=draft(components={"tool_state": b"x" * 100}), usage=(spent(1),)
        )
        await storage.session("s").commit(turn)
    return turn


async def test_a_damaged_receipt_is_no_replay(backend_url: str) -> None:
    """A turn whose stored result cannot be true is damage, and the repeat writes nothing."""
    turn = await _prepare(backend_url)
    await raw(backend_url, """UPDATE lash_turns SET result = '{"revision": "many"}'""")
    async with await lash.open(backend_url) as storage:
        with pytest.raises(lash.CorruptData, match="turn 't'"):
            await storage.session("s").commit(turn)
        head = await storage.session("s").head()
    assert head is not None
    assert head.revision == turn.expected_revision + 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE lash_nodes SET body = '{'", "node 'a'"),
        ("UPDATE lash_sessions SET config = '[]'", "configuration"),
        ("UPDATE lash_checkpoints SET turn_state = '7'", "turn state"),
        ("UPDATE lash_checkpoints SET checkpoint_ref = 'other'", "not the one that was committed"),
        ("DELETE FROM lash_checkpoints", "no checkpoint"),
        ("DELETE FROM lash_blobs", "missing"),
        ("UPDATE lash_blobs SET size = 7", "damaged"),
        ("UPDATE lash_blobs SET codec = 'rot13'", "unknown codec"),
    ],
)
async def test_damage_is_never_absence(backend_url: str, damage: str, message: str) -> None:
    """A load that reads a damaged row raises an error that names the row."""
    await _prepare(backend_url)
    await raw(backend_url, damage)
    async with await lash.open(backend_url) as storage:
        with pytest.raises(lash.CorruptData, match=message):
            await storage.session("s").load()


async def test_damaged_metadata_is_no_empty_list(backend_url: str) -> None:
    """A list that reads a damaged row raises instead of omitting the session."""
    await _prepare(backend_url)
    await raw(backend_url, "UPDATE lash_sessions SET relation = '\"none\"'")
    async with await lash.open(backend_url) as storage:
        with pytest.raises(lash.CorruptData, match="relation"):
            await storage.sessions.list()


async def test_a_missing_ancestor_ends_the_path_and_a_wrong_one_is_damage(backend_url: str) -> None:
    """A path ends at a missing ancestor; a node stored below another parent than it names is damage."""
    async with await lash.open(backend_url) as storage:
        revision = (await storage.sessions.create("s")).revision
        await storage.session("s").commit(commit(revision, node("a"), node("b", "a"), node("c", "b")))
        await raw(backend_url, "UPDATE lash_nodes SET parent_node_id = 'x' WHERE node_id = 'c'")
        with pytest.raises(lash.CorruptData, match="node 'c'"):
            await storage.session("s").load()
        await raw(backend_url, "DELETE FROM lash_nodes WHERE node_id = 'b'")
        read = await storage.session("s").load()
    assert read is not None
    assert [each.node_id for each in read.graph.nodes] == ["c"]


@pytest.mark.parametrize(("damaged", "wrong"), [("n800", "m100"), ("m0", "n3"), ("m100", "n3"), ("n400", "m599")])
async def test_a_wrong_parent_is_damage_to_a_long_raw_path(backend_url: str, damaged: str, wrong: str) -> None:
    """Inside a segment, where a branch begins, and at the ends of pieces: no read follows it."""
    async with await lash.open(backend_url) as storage:
        revision = (await storage.sessions.create("s")).revision
        session, branch = storage.session("s"), chain(*[f"m{number}" for number in range(600)], after="n899")
        await session.commit(commit(revision, *chain(*[f"n{number}" for number in range(1_300)])))
        await session.commit(commit(revision + 1, *branch))
        await raw(backend_url, f"UPDATE lash_nodes SET parent_node_id = '{wrong}' WHERE node_id = '{damaged}'")
        for last in (1_300, 1_501):
            with pytest.raises(lash.CorruptData, match=f"node '{damaged}' does not lie below its parent"):
                await session.raw_path(last=last)


async def test_an_audit_does_not_trust_what_it_cannot_read(backend_url: str) -> None:
    """An unreadable checkpoint makes an audit delete nothing; it follows edges, not contents."""
    await _prepare(backend_url)
    await raw(backend_url, "UPDATE lash_checkpoints SET turn_state = '7'")
    async with await lash.open(backend_url) as storage:
        assert (await storage.maintenance.collect_garbage()).is_clean
    assert await raw(backend_url, "SELECT count(*) FROM lash_blobs") == [(1,)]
