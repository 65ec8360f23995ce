"""The arguments of ``commit_apply``: those of commits sent together, and the records of a commit sent alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lash.base.limits import MAX_INTEGER
from lash.plan.record import EncodedChange
from lash.postgres.arguments import columns
from lash.postgres.commit.planned import PlannedCommit
from lash.postgres.commit.together import arguments_together


class RecordArguments(NamedTuple):
    """The columns of the records of the only commit, in the order in which ``commit_apply.sql`` lists them."""

    record_own: list[object]
    record_collections: list[object]
    record_keys: list[object]
    record_versions: list[object]
    record_forms: list[object]
    record_hashes: list[object]
    record_codecs: list[object]
    record_sizes: list[object]
    record_contents: list[object]
    record_index_1: list[object]
    record_index_2: list[object]
    record_index_3: list[object]
    record_index_4: list[object]
    record_ttls_ms: list[object]
    record_expiries_ms: list[object]
    max_records: int


def arguments_of_any(commits: Sequence[PlannedCommit]) -> tuple[object, ...]:
    """Return the arguments of ``commit_apply``; a commit with records must be the only one."""
    changes = [change for commit in commits for change in commit.prepared.records]
    own = (each.name.session_id is not None for each in changes)
    rows = ((mine, *record_columns(each)) for mine, each in zip(own, changes, strict=True))
    width = len(RecordArguments._fields) - 1
    # The last argument is the most records; the budget of the storage limits them before.
    return *arguments_together(commits), *columns(rows, width), MAX_INTEGER


def record_columns(change: EncodedChange) -> tuple[object, ...]:
    """Return a change from its collection on; a deletion has NULL from its form on."""
    name = (change.name.collection, change.name.key, change.expected_version)
    if change.put is None:
        return *name, *(None for _ in range(11))
    put, blob = change.put, change.put.value.blob
    stored = (put.value.form, blob.ref, blob.codec.value, blob.size, blob.content)
    return *name, *stored, *put.fields, put.ttl_ms, put.expires_at_ms
