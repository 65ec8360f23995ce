"""Rules of records in a commit: which may be changed, when it is refused, and its identity."""

from __future__ import annotations

import msgspec
import pytest

from lash.base.compression import Compression, pack
from lash.errors import CommitTooLarge, InvalidInput, RecordConflict, SessionBindingMismatch
from lash.model.record import RecordChange, RecordDelete, RecordPut
from lash.model.session.commit import Commit, CommitBudget
from lash.plan.record import EncodedChange, StoredValue, encode_delete, encode_put
from lash.plan.session.commit import Apply, PreparedCommit, assume_facts, plan_commit, prepare_commit
from tests.rules.kit import EMPTY_HEAD, SESSION, facts, rules


def encoded(change: RecordChange) -> EncodedChange:
    """Return a change with the stored form of its value, which must be bytes."""
    if isinstance(change, RecordDelete):
        return encode_delete(change)
    assert isinstance(change.value, bytes)
    return encode_put(change, StoredValue(form="bytes", blob=pack(change.value, Compression.LOW_LATENCY)))


def put(
    key: str = "k",
    value: bytes = b"v",
    *,
    session_id: str | None = None,
    expected_version: int | None = None,
    ttl_ms: int | None = None,
) -> RecordPut:
    return RecordPut(
        collection="c",
        key=key,
        value=value,
        session_id=session_id,
        expected_version=expected_version,
        ttl_ms=ttl_ms,
    )


def prepared(*records: RecordChange, turn_id: str | None = None, budget: CommitBudget | None = None) -> PreparedCommit:
    commit = Commit(session_id=SESSION, expected_revision=0, turn_id=turn_id, records=records)
    return prepare_commit(commit, SESSION, rules(budget=budget), tuple(map(encoded, records)))


def test_records_are_rows_and_bytes_of_a_commit() -> None:
    """Each record is one row, and its value counts before compression."""
    plain, with_records = prepared(), prepared(put("a", b"x" * 100), put("b"), RecordDelete(collection="c", key="d"))
    assert with_records.rows == plain.rows + 3
    assert with_records.size == plain.size + 101
    with pytest.raises(CommitTooLarge):
        prepared(put("a"), put("b"), budget=CommitBudget(max_rows=1))


def test_only_records_of_the_session_and_of_the_storage_are_changed() -> None:
    """A record of another session, or a record twice, is refused."""
    assert len(prepared(put(session_id=SESSION), put()).records) == 2
    with pytest.raises(SessionBindingMismatch):
        prepared(put(session_id="other"))
    with pytest.raises(InvalidInput, match="changed twice"):
        prepared(put(), RecordDelete(collection="c", key="k"))


def test_versions_are_the_last_check() -> None:
    """A version other than the expected one refuses the commit; a head that was seen assumes the expected ones."""
    ready = prepared(put(expected_version=2), put("new", expected_version=0))
    name = ready.records[0].name
    known = facts(EMPTY_HEAD)
    assert isinstance(plan_commit(ready, msgspec.structs.replace(known, record_versions={name: 2})), Apply)
    with pytest.raises(RecordConflict):
        plan_commit(ready, msgspec.structs.replace(known, record_versions={name: 3}))
    assumed = assume_facts(ready, EMPTY_HEAD)
    assert assumed is not None
    assert assumed.record_versions == {name: 2}
    assert isinstance(plan_commit(ready, assumed), Apply)


def test_records_are_part_of_a_turns_identity() -> None:
    """Another owner, key, value or expiry is another commit; another expected version is not."""
    base = prepared(put(), turn_id="t").commit_hash
    assert prepared(put(expected_version=7), turn_id="t").commit_hash == base
    others: list[tuple[RecordChange, ...]] = [
        *((), (put(session_id=SESSION),), (put("other"),), (put(value=b"w"),), (put(ttl_ms=5),)),
        *((RecordDelete(collection="c", key="k"),), (put(), put("other"))),
    ]
    hashes = [prepared(*records, turn_id="t").commit_hash for records in others]
    assert len({base, *hashes}) == len(others) + 1
