"""Rules about records: puts, deletes, lists, expiry, and changes with a commit."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from lash.model.record import RecordChange, RecordDelete, RecordPut
from lash.model.session.commit import Commit
from tests.proof.model.base_rules import SessionLife, session_ids
from tests.proof.model.kit import Refused, action
from tests.proof.model.record_model import RecordModel
from tests.proof.model.world import Side, World

KEYS: Final = ("a", "a/1", "a/2", "b", "é")
VALUES: Final[tuple[Any, ...]] = (1, {"k": [None, "x"]}, b"\xff\x00", "text " * 2_000)
INDEXES: Final[tuple[dict[str, str], ...]] = ({}, {"f": "x"}, {"f": "x", "g": "y"}, {"e": "z", "g": "y"})
owners: Final = st.sampled_from((None, None, "s0", "s0", "s0", "s1"))
keys: Final = st.sampled_from(KEYS)
wishes: Final = st.sampled_from(("any", "any", "right", "right", "wrong", "none"))
"""Which version a change expects, beside the stored one."""
puts: Final = st.tuples(
    keys, st.sampled_from(VALUES), st.sampled_from(INDEXES), st.sampled_from((None, 400, 400, 1_000)), wishes
)
changes: Final = st.lists(
    st.one_of(st.tuples(owners, puts), st.tuples(owners, keys, wishes)),
    min_size=1,
    max_size=4,
    unique_by=lambda each: (each[0], each[1][0] if isinstance(each[1], tuple) else each[1]),
)


class RecordRules(SessionLife):
    """Records of the storage and of sessions that are deleted and created again."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.records = RecordModel(self.sessions, lambda: world.now_ms)

    @action(10, owner=owners, put=puts)
    def put_record(self, owner: str | None, put: tuple[Any, ...]) -> None:
        change = self._put(owner, put)
        self.step(
            "put",
            lambda side: _put_one(side, change),
            lambda _: self.records.change([change])[0] + 1,
        )

    @action(5, owner=owners, key=keys, wish=wishes)
    def delete_record(self, owner: str | None, key: str, wish: str) -> None:
        change = self._delete(owner, key, wish)
        was_there = self.step(
            "delete_record",
            lambda side: side.storage.records.delete(
                "c", key, session_id=owner, expected_version=change.expected_version
            ),
            lambda _: self.records.change([change])[0] > 0,
        )
        self.count(f"delete_record:{was_there}")

    @action(5, drawn=changes)
    def put_many_records(self, drawn: list[tuple[Any, ...]]) -> None:
        wanted = [change for change in self._changes(drawn) if isinstance(change, RecordPut)]
        self.step(
            "put_many",
            lambda side: side.storage.records.put_many(wanted),
            lambda _: tuple(version + 1 for version in self.records.change(wanted)),
        )

    @action(8, session_id=session_ids, drawn=changes, stale=st.sampled_from((0, 0, 0, 0, 1)))
    def commit_records(self, session_id: str, drawn: list[tuple[Any, ...]], stale: int) -> None:
        """Records of the session and of the storage land with a commit, or the commit is refused."""
        wanted = tuple(each for each in self._changes(drawn) if each.session_id in (None, session_id))
        known = self.sessions.live.get(session_id)
        expected = (0 if known is None else known.revision) + stale
        commit = Commit(session_id=session_id, expected_revision=expected, records=wanted)
        self.step("commit", lambda side: _committed(side, commit), lambda _: self._commit(commit))

    @action(8, owner=owners, key=keys)
    def get_record(self, owner: str | None, key: str) -> None:
        found = self.step(
            "get",
            lambda side: side.storage.records.get("c", key, session_id=owner),
            lambda _: self.records.get(owner, "c", key),
        )
        self.count("get:found" if found is not None else "get:absent")

    @action(
        8,
        owner=owners,
        prefix=st.sampled_from(("", "", "", "a", "a/")),
        where=st.sampled_from(({}, {}, {}, {"f": "x"}, {"g": "y"}, {"g": "y", "f": "x"})),
        after=st.one_of(st.none(), st.none(), keys),
        limit=st.sampled_from((2, 100, 100)),
        reverse=st.booleans(),
    )
    def list_records(self, owner: str | None, **how: Any) -> None:  # noqa: ANN401 (drawn above)
        found = self.step(
            "list",
            lambda side: side.storage.records.list("c", session_id=owner, **how),
            lambda _: self.records.list(owner, "c", **how),
        )
        self.count("list:some" if found else "list:none")

    @action(2)
    def prune_records(self) -> None:
        gone = self.step("prune", lambda side: side.storage.records.prune(), lambda _: self.records.prune())
        self.count("prune:some" if gone else "prune:none")

    def forget_session(self, session_id: str) -> bool:
        self.records.drop_owner(session_id)
        return super().forget_session(session_id)

    def _changes(self, drawn: list[tuple[Any, ...]]) -> list[RecordChange]:
        return [self._put(each[0], each[1]) if isinstance(each[1], tuple) else self._delete(*each) for each in drawn]

    def _put(self, owner: str | None, put: tuple[Any, ...]) -> RecordPut:
        key, value, index, ttl_ms, wish = put
        return RecordPut(
            collection="c",
            key=key,
            value=value,
            session_id=owner,
            index=index,
            ttl_ms=ttl_ms,
            expected_version=self._expected(owner, key, wish),
        )

    def _delete(self, owner: str | None, key: str, wish: str) -> RecordDelete:
        return RecordDelete(
            collection="c", key=key, session_id=owner, expected_version=self._expected(owner, key, wish)
        )

    def _expected(self, owner: str | None, key: str, wish: str) -> int | None:
        record = self.records.kept.get((owner, "c", key))
        stored = 0 if record is None else record.version
        return {"any": None, "right": stored, "wrong": stored + 1, "none": 0}[wish]

    def _commit(self, commit: Commit) -> int:
        state = self.sessions.need(commit.session_id)
        if commit.expected_revision != state.revision:
            raise Refused("RevisionConflict", expected=commit.expected_revision, actual=state.revision)
        self.records.change(commit.records)
        state.revision += 1
        return state.revision


async def _put_one(side: Side, put: RecordPut) -> int:
    return await side.storage.records.put(
        put.collection,
        put.key,
        put.value,
        session_id=put.session_id,
        index=put.index,
        ttl_ms=put.ttl_ms,
        expected_version=put.expected_version,
    )


async def _committed(side: Side, commit: Commit) -> int:
    return (await side.storage.session(commit.session_id).commit(commit)).revision
