"""A commit takes the shortest of four statements, and all of them leave the same rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from typing import Any, Final, TypeAlias, Unpack

import asyncpg
import msgspec
import pytest
import pytest_asyncio

import lash
from lash.base.compression import BlobRef
from lash.model.session.commit import Commit, Unchanged
from lash.postgres.cache import HeadCache, KnownCheckpoint
from lash.postgres.commit.alone import ALONE, LeaseArguments
from lash.postgres.commit.record import RecordArguments
from lash.postgres.commit.statement import MOST_ALONE
from lash.postgres.commit.together import CommitTogether
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import argument_names, load_queries
from tests.contract.queue_state import leased
from tests.factories.session import CommitFields, acquired, chain, commit, created, draft, frame, node, owner, spent
from tests.raw import raw
from tests.rules.kit import EMPTY_HEAD

Components: TypeAlias = Mapping[str, bytes | BlobRef]
STATE: Final = {"state": b"some state"}
LAST: Final = {"a": b"a4", "b": b"b2"}
LONG: Final = "a text that is stored compressed " * 50


_COLUMNS: Final = {
    "lash_nodes": "seq, node_id, segment, depth, parent_node_id, user_message, body, packed, kind",
    "lash_turns": "turn_id, (result::jsonb)",
    "lash_checkpoints": "t.revision, t.checkpoint_ref, turn_state, plugin_snapshot_revision",
    "lash_components": "key, first_revision, last_revision, hash",
    "lash_blobs": "hash, codec, size, content",
    "lash_usage": "t.revision, ordinal, source, t.model, input_tokens, output_tokens, t.agent",
    "lash_usage_totals": "source, t.model, first_revision, first_ordinal, input_tokens, output_tokens",
    "lash_segments": "segment, parent_segment, parent_depth, closed",
    "lash_session_leases": "fencing, owner_id",
    "lash_sessions": "s.revision, s.config, s.current_frame_id, s.checkpoint_ref, s.leaf_node_id, s.leaf_segment, "
    "s.leaf_depth, s.segment_count, s.node_seq, s.node_count, s.first_user_message, s.user_message_count",
}
ROWS: Final = [
    f"SELECT {columns} FROM {table} AS t JOIN lash_sessions AS s USING (session_key) "
    "WHERE s.session_id = '{}' ORDER BY 1, 2"
    for table, columns in _COLUMNS.items()
]
"""The rows of a session in the tables that commits write, without keys and times."""


def ref_of(content: bytes) -> BlobRef:
    return BlobRef(sha256(content).hexdigest())


async def counts(url: str) -> tuple[int, ...]:
    """Return how many components, blobs and frames are stored."""
    tables = ("lash_components", "lash_blobs", "lash_frames")
    return (await raw(url, "SELECT " + ", ".join(f"(SELECT count(*) FROM {table})" for table in tables)))[0]


class Forms:
    """Records the statements of commits since the last call of ``taken``."""

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


@pytest.mark.parametrize(
    ("statement", "arguments"),
    [
        ("commit_alone", ALONE),
        ("commit_alone_leased", ALONE + LeaseArguments._fields),
        ("commit_turns", CommitTogether._fields),
        ("commit_apply", CommitTogether._fields + RecordArguments._fields),
    ],
)
def test_arguments_come_in_the_order_of_the_statement(statement: str, arguments: tuple[str, ...]) -> None:
    """The names that a statement lists are those of the record that is sent to it."""
    assert argument_names(load_queries("lash.postgres.sql")[statement]) == arguments


async def test_a_commit_takes_the_shortest_statement(storage: lash.Storage, forms: Forms) -> None:
    """Nodes, a ledger, new bytes, a lease: an ordinary turn goes alone. What it has beyond that decides."""
    session = storage.session("s")
    fence = await leased(storage)
    for number, (form, made) in enumerate(
        [
            ("commit_alone", turn(1, turn_id="t")),
            ("commit_alone", turn(2, usage=(spent(1),))),
            ("commit_alone_leased", turn(3, fence=fence)),
            ("commit_turns", turn(4, usage=(spent(1), spent(1)))),
            ("commit_alone", turn(5)),
            ("commit_apply", turn(6, STATE)),
            ("commit_alone", turn(7, STATE)),
            ("commit_alone", turn(8, {"state": b"other state"})),
            ("commit_alone_leased", turn(9, {"state": b"third state"}, fence=fence)),
            ("commit_alone", turn(10, {"state": ref_of(b"third state")})),
            ("commit_turns", turn(11, STATE, usage=(spent(1), spent(1)))),
            ("commit_turns", turn(12, {"state": b"last"}, usage=(spent(1), spent(1)), fence=fence)),
            ("commit_apply", turn(13)),
            ("commit_alone", turn(14)),
            ("commit_apply", turn(15, frames=(frame("f"),), current_frame_id="f")),
            ("commit_apply", turn(16)),
            ("commit_alone_leased", turn(17, release=fence)),
            ("commit_turns", commit(18, *chain(*(f"m{index}" for index in range(MOST_ALONE + 1)), after="n17"))),
            ("commit_alone", commit(19, graph=Unchanged())),
            ("commit_apply", commit(20, *chain("beside", after="n3"))),
        ],
        start=2,
    ):
        assert (await session.commit(made)).revision == number
        assert forms.taken()[-1] == form, made
    read = await session.load()
    assert read is not None
    assert [node.node_id for node in read.graph.nodes] == ["n0", "n1", "n2", "n3", "beside"]
    assert read.usage == (spent(7),)


async def test_every_statement_leaves_the_same_rows(postgres_storage_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All statements write the same rows, except for keys and times."""
    made = [
        turn(0, {"a": b"a0", "b": b"b"}, turn_id="t0"),
        turn(1, {"a": b"a1", "b": b"b"}, turn_id="t1", usage=(spent(1),)),
        turn(2, {"a": b"a2", "b": b"b2"}, usage=(spent(2), spent(3, model="m2"))),
        turn(3, {"a": b"a2", "b": b"b2"}, turn_id="t3"),
        turn(4, {"a": b"a4", "b": b"b2"}, turn_id="t4", usage=(spent(4),)),
        commit(5, node("n5", "n4", LONG), usage=(spent(5, source="", model=""),), checkpoint=draft(5, LAST)),
        commit(6, *chain("n6", "n7", after="n5"), node("n8", "n7", LONG), node("n9", "n8"), checkpoint=draft(6, LAST)),
    ]
    left = []
    for session_id in ("alone", "turns", "apply"):
        if session_id == "turns":
            monkeypatch.setattr("lash.postgres.commit.statement._may_go_alone", lambda _: False)
        if session_id == "apply":
            monkeypatch.setattr("lash.postgres.commit.statement._replaced_if_ordinary", lambda _: None)
        forms = Forms()
        async with await lash.open(postgres_storage_url, on_statement=forms) as opened:
            await created(opened, session_id)
            for each in made:
                await opened.session(session_id).commit(msgspec.structs.replace(each, session_id=session_id))
        left.append([await raw(postgres_storage_url, query.format(session_id)) for query in ROWS])
        assert forms.taken() == ["commit_apply", *[f"commit_{session_id}"] * 6]
    assert left[0] == left[1] == left[2]


@pytest.mark.parametrize("what", ["node", "source", "owner"])
async def test_ids_may_contain_the_separator_of_texts(storage: lash.Storage, forms: Forms, what: str) -> None:
    """A commit whose texts contain the character between texts takes another statement and keeps them."""
    last = "a\x1fb" if what == "node" else "m2"
    source = "a\x1fb" if what == "source" else "turn"
    claimed = await storage.leases.claim("s", owner("a\x1fb"), ttl_ms=60_000)
    fence = acquired(claimed).fence if what == "owner" else None
    made = commit(1, *chain("m1", last, after="n0"), usage=(spent(1, source=source),), fence=fence)
    assert (await storage.session("s").commit(made)).revision == 2
    assert forms.taken() == ["commit_alone_leased" if what == "owner" else "commit_turns"]
    read = await storage.session("s").load()
    assert read is not None
    assert [each.node_id for each in read.graph.nodes] == ["n0", "m1", last]
    assert read.usage == (spent(1, source=source),)


async def test_a_fork_finds_inherited_nodes(storage: lash.Storage, forms: Forms) -> None:
    """A fork never takes the statement that looks for new ids among own nodes only, so inherited ids are refused."""
    await storage.sessions.fork("s", "f")
    fork = storage.session("f")
    first = await fork.revision()
    await fork.commit(commit(first, *chain("own", after="n0"), session_id="f"))
    forms.taken()
    await fork.commit(commit(first + 1, *chain("more", after="own"), session_id="f"))
    assert forms.taken() == ["commit_turns"]
    # The fork inherits a node of this id.
    with pytest.raises(lash.errors.NodeConflict):
        await fork.commit(commit(first + 2, *chain("n0", after="more"), session_id="f"))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="nodes"),
        pytest.param({"usage": (spent(1),)}, id="ledger"),
        pytest.param({"usage": (spent(1),), "fence": True}, id="lease"),
    ],
)
async def test_a_commit_alone_waits_for_other_changes_of_its_session(
    storage: lash.Storage, forms: Forms, postgres_storage_url: str, values: dict[str, Any]
) -> None:
    """A session that is renamed meanwhile keeps its new name, and the commit lands once the lock is free."""
    fence = await leased(storage)
    made = turn(1, **(values | {"fence": fence} if "fence" in values else values))
    options = PostgresOptions.from_url(postgres_storage_url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE lash_sessions SET name = 'renamed'")
        committing = asyncio.create_task(storage.session("s").commit(made))
        await waits_for_a_lock(connection)
        await transaction.commit()
    finally:
        await connection.close()
    assert (await committing).revision == 2
    assert forms.taken() == ["commit_alone_leased" if "fence" in values else "commit_alone"]
    read = await storage.session("s").load()
    assert read is not None
    assert [node.node_id for node in read.graph.nodes] == ["n0", "n1"]
    assert (await storage.session("s").meta()).name == "renamed"


async def waits_for_a_lock(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Return once a statement waits for a lock that this connection holds."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    async with asyncio.timeout(30):
        while await connection.fetchval(waiting) == 0:  # noqa: ASYNC110 (the server sends no notice)
            await asyncio.sleep(0.01)


async def test_a_commit_alone_is_refused_whole(storage: lash.Storage, forms: Forms) -> None:
    """The statement itself finds a taken id or turn; the plan then raises the error."""
    session = storage.session("s")
    await session.commit(turn(1, turn_id="t"))
    await session.commit(turn(2))
    forms.taken()
    with pytest.raises(lash.errors.NodeConflict):
        await session.commit(commit(3, *chain("n0", after="n2")))
    with pytest.raises(lash.errors.TurnConflict):
        await session.commit(turn(3, turn_id="t"))
    assert forms.taken() == ["commit_alone", "commit_facts"] * 2
    assert (await session.commit(turn(3))).revision == 4


async def test_no_statement_leaves_state_behind(storage: lash.Storage, postgres_storage_url: str) -> None:
    """A commit without state deletes the state before it, bytes and frames included."""
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
    """A storage that knew of no state plans again after another has committed some, and deletes it."""
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
    """With retention, commits without state still delete what has grown too old."""
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
    # A storage that keeps one revision does not assume that another one did.
    async with await lash.open(postgres_storage_url, on_statement=forms) as opened:
        await opened.session("s").commit(turn(4))
        assert forms.taken() == ["commit_facts", "commit_apply"]
        assert await opened.session("s").checkpoint(4) is None
        assert await opened.session("s").checkpoint(5) is not None


async def test_reading_forgets_no_checkpoint(storage: lash.Storage, forms: Forms) -> None:
    """The checkpoint of a revision stays known when the head is read again."""
    session = storage.session("s")
    await session.load()
    await session.head()
    await session.commit(turn(1))
    assert forms.taken() == ["commit_alone"]


def test_a_head_is_forgotten_with_its_checkpoint() -> None:
    """Evicting a head also evicts what was known of its session."""
    heads, known = HeadCache(capacity=1), KnownCheckpoint({}, inherits=False)
    heads.remember("a", EMPTY_HEAD, known)
    assert heads.checkpoint("a", EMPTY_HEAD) is known
    heads.remember("b", EMPTY_HEAD)
    assert heads.get("a") is None
    assert heads.checkpoint("a", EMPTY_HEAD) is None


async def test_checkpoints_of_every_statement_can_be_read(storage: lash.Storage) -> None:
    """The head has the checkpoint that was committed last, and no other is left, whichever statement wrote it."""
    session = storage.session("s")
    for revision, components in enumerate(({}, STATE, {**STATE, "more": b"more"}, {"more": b"more"}, {}, {}), start=1):
        await session.commit(turn(revision, components))
        found = await session.checkpoint()
        assert found is not None
        assert (found.revision, found.components) == (revision + 1, components)
        assert found.manifest.turn_state.turn_index == revision
        assert await session.checkpoint(revision) is None
