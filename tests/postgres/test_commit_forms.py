"""A commit takes the shortest form of its statement, and each form leaves behind what the whole one would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from typing import Final, TypeAlias, Unpack

import pytest
import pytest_asyncio

import lash
from lash.model.commit import Commit
from lash.model.value import BlobRef
from lash.plan.commit import Checkpoints
from lash.postgres.heads import SeenHeads
from lash.testing.contract.queue_state import leased
from lash.testing.factories import CommitFields, chain, commit, created, draft, frame, spent
from tests.plan.kit import EMPTY_HEAD
from tests.raw import raw

Components: TypeAlias = Mapping[str, bytes | BlobRef]
STATE: Final = {"state": b"some state"}


async def counts(url: str) -> tuple[int, ...]:
    """Return how many components, blobs and frames are stored."""
    tables = ("lash_components", "lash_blobs", "lash_frames")
    return (await raw(url, "SELECT " + ", ".join(f"(SELECT count(*) FROM {table})" for table in tables)))[0]


class Forms:
    """Notes the statements of commits since they were last asked for."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def __call__(self, name: str) -> None:
        if name.startswith("commit_"):
            self._names.append(name)

    def taken(self) -> list[str]:
        names, self._names = self._names, []
        return names


@pytest.fixture
def forms() -> Forms:
    return Forms()


@pytest_asyncio.fixture
async def storage(postgres_storage_url: str, forms: Forms) -> AsyncIterator[lash.Storage]:
    """A storage with the session ``s``, which has one commit."""
    async with await lash.open(postgres_storage_url, on_statement=forms) as opened:
        await created(opened)
        await opened.session("s").commit(turn(0))
        assert forms.taken() == ["commit_apply"]
        yield opened


def turn(revision: int, components: Components | None = None, **fields: Unpack[CommitFields]) -> Commit:
    """Return a commit of one node, with these components."""
    before = f"n{revision - 1}" if revision else None
    fields["checkpoint"] = draft(revision, components)
    return commit(revision, *chain(f"n{revision}", after=before), **fields)


async def test_a_commit_takes_the_shortest_form(storage: lash.Storage, forms: Forms) -> None:
    """Nodes alone, a ledger or a lease, state, or all of it: one statement each, of no more steps than needed."""
    session = storage.session("s")
    fence = await leased(storage)
    for number, (form, made) in enumerate(
        [
            ("commit_apply_nodes", turn(1, turn_id="t")),
            ("commit_apply_queue", turn(2, usage=(spent(1),))),
            ("commit_apply_queue", turn(3, fence=fence)),
            ("commit_apply_nodes", turn(4)),
            ("commit_apply_state", turn(5, STATE)),
            ("commit_apply_turns", turn(6, STATE, fence=fence)),
            ("commit_apply_turns", turn(7, {"state": BlobRef(sha256(STATE["state"]).hexdigest())})),
            ("commit_apply_state", turn(8)),
            ("commit_apply_nodes", turn(9)),
            ("commit_apply", turn(10, frames=(frame("f"),), current_frame_id="f")),
            ("commit_apply", turn(11)),
            ("commit_apply_queue", turn(12, release=fence)),
            ("commit_apply", commit(13, *chain("beside", after="n3"))),
        ],
        start=2,
    ):
        assert (await session.commit(made)).revision == number
        assert forms.taken()[-1] == form, made
    read = await session.load()
    assert read is not None
    assert [node.node_id for node in read.graph.nodes] == ["n0", "n1", "n2", "n3", "beside"]
    assert read.usage == (spent(1),)


async def test_no_form_leaves_state_behind(storage: lash.Storage, postgres_storage_url: str) -> None:
    """What a commit without state follows is gone, bytes and frames included, and stays gone."""
    session = storage.session("s")
    await session.commit(turn(1, STATE, frames=(frame("f", state=b"of the frame"),), current_frame_id="f"))
    assert await counts(postgres_storage_url) == (2, 2, 1)
    for revision in (2, 3):
        await session.commit(turn(revision))
        assert await counts(postgres_storage_url) == (0, 0, 0)
    read = await session.load()
    assert read is not None
    assert read.checkpoint.components == {}
    assert read.frames == ()


async def test_state_that_another_storage_left_is_noticed(
    storage: lash.Storage, forms: Forms, postgres_storage_url: str
) -> None:
    """A storage that knew of no state plans again after another has committed some, and takes the form that ends it."""
    session = storage.session("s")
    async with await lash.open(postgres_storage_url) as other:
        await other.session("s").commit(turn(1, STATE))
    with pytest.raises(lash.RevisionConflict):
        await session.commit(turn(1))
    forms.taken()
    await session.commit(turn(2))
    assert forms.taken() == ["commit_apply"]
    assert await counts(postgres_storage_url) == (0, 0, 0)


async def test_state_that_is_kept_for_a_while_expires(postgres_storage_url: str, forms: Forms) -> None:
    """With retention, commits without state still take the form that drops what has grown too old."""
    async with await lash.open(postgres_storage_url, on_statement=forms, retention=lash.Retention.last(2)) as opened:
        await created(opened)
        session = opened.session("s")
        await session.commit(turn(0))
        await session.commit(turn(1, STATE))
        forms.taken()
        for revision, left in ((2, (1, 1, 0)), (3, (0, 0, 0))):
            await session.commit(turn(revision))
            assert forms.taken() == ["commit_apply"]
            assert await counts(postgres_storage_url) == left
        assert await session.checkpoint(3) is not None
    # What a storage that keeps more has left is not taken for the only checkpoint.
    async with await lash.open(postgres_storage_url, on_statement=forms) as opened:
        await opened.session("s").commit(turn(4))
        assert forms.taken() == ["commit_facts", "commit_apply"]
        assert await opened.session("s").checkpoint(4) is None
        assert await opened.session("s").checkpoint(5) is not None


async def test_reading_does_not_make_the_form_longer(storage: lash.Storage, forms: Forms) -> None:
    """What is known of the state of a revision stays known when the head is read again."""
    session = storage.session("s")
    await session.load()
    await session.head()
    await session.commit(turn(1))
    assert forms.taken() == ["commit_apply_nodes"]


def test_what_is_forgotten_of_a_head_is_forgotten_whole() -> None:
    """A head that makes room for another takes along what was known of its checkpoints."""
    heads = SeenHeads(capacity=1)
    heads.remember("a", EMPTY_HEAD, Checkpoints.ONE)
    assert heads.checkpoints("a", EMPTY_HEAD) is Checkpoints.ONE
    heads.remember("b", EMPTY_HEAD)
    assert heads.get("a") is None
    assert heads.checkpoints("a", EMPTY_HEAD) is Checkpoints.ANY


async def test_checkpoints_of_every_form_can_be_read(storage: lash.Storage) -> None:
    """The checkpoint of the head is the one that was committed last, and the only one, whatever form wrote it."""
    session = storage.session("s")
    for revision, components in enumerate(({}, STATE, {**STATE, "more": b"more"}, {"more": b"more"}, {}, {}), start=1):
        await session.commit(turn(revision, components))
        found = await session.checkpoint()
        assert found is not None
        assert (found.revision, found.components) == (revision + 1, components)
        assert found.manifest.turn_state.turn_index == revision
        assert await session.checkpoint(revision) is None
