"""The sweep reaches every operation that writes: of every Protocol, and every statement that writes on SQLite."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

import lash.stores
from lash.sqlkit.queries import compact, load_queries
from tests.proof.sweep.bench import SQLiteBench
from tests.proof.sweep.cases import CASES
from tests.proof.sweep.learned import learn

BEHIND = {
    "AttachmentManifest": "behind AttachmentStore, whose operations go through every one of its methods",
    "ByteStore": "the bytes in the database are behind AttachmentStore; other byte stores have no statements",
    "HintListener": "hints write nothing",
    "Hints": "hints write nothing but to the registry, which the next beat of a worker undoes",
    "ObserverWatch": "waiting writes nothing",
    "ProcessWaiter": "waiting writes nothing",
    "ReplyWatch": "waiting writes nothing",
    "SessionWaiter": "waiting writes nothing",
    "Storage": "the bundle of the others; closing it writes nothing",
}
"""Protocols without cases of their own, and why; a port named `…Rows` is covered through its store."""

READS = {
    "ActivityStore": {"process_changes", "read"},
    "ArtifactStore": {"exists", "get", "get_environment", "list", "namespaces"},
    "AttachmentStore": {"entry", "get", "list", "list_uncommitted"},
    "EffectStore": {"get", "get_many", "group", "list", "recent"},
    "EventStore": {
        *("after", "changes", "count_through", "last_sequences", "recent", "signal_at", "tail"),
        *("undeliverable_wakes", "wakes_after"),
    },
    "GrantStore": {"has", "list", "of_process"},
    "LeaseStore": {"holder", "live", "parked"},
    "ActStore": {"list"},
    "LimitStore": {"list", "offered", "places"},
    "Maintenance": {"find_damage", "prunable", "rewrap"},
    "OccurrenceStore": {"deliveries", "get"},
    "ProcessLeaseStore": {"holder"},
    "ProcessStore": {"get", "ids", "list", "runnable", "versions"},
    "QueueStore": {"dead", "list", "list_all", "list_pending", "ready_agents", "ready_sessions"},
    "RecordStore": {"collections", "get", "get_many", "list"},
    "RowStore": {"count", "mark", "pulse", "read", "read_stored", "reseal", "schema_number", "sequences"},
    "ScheduleStore": {"get", "list", "next_fire_at_ms"},
    "Session": {
        "blob",
        "checkpoint",
        "checkpoint_manifest",
        "children",
        "head",
        "list_nodes",
        "load",
        "meta",
        "node",
        "nodes",
        "raw_path",
        "revision",
        "turns",
    },
    "SessionStore": {"changes", "changes_cursor", "ids", "list", "open"},
    "TriggerStore": {"get", "list"},
    "UsageStore": {"sum"},
    "WaitStore": {"get", "get_id", "pending"},
    "WorkStore": {"check_schema"},
    "WorkerStore": {"holding", "list"},
}
"""Methods that write nothing; without a sealer, as here, sealing rows again writes nothing either."""

UNREACHED = {
    "maintenance_drop_blobs": "garbage that no write of lash leaves, so no ground can be laid for it",
    "maintenance_drop_components": "garbage that no write of lash leaves, so no ground can be laid for it",
    "node_set_kind": "migrations are not swept; tests/engine/migration kills them",
    "schema_record_addition": "migrations are not swept; tests/engine/migration kills them",
    "schema_record_migration": "migrations are not swept; tests/engine/migration kills them",
    "seal_keep_mark": "the storages of the sweep have no sealer",
    "schedule_postpone": "for a schedule that this machine cannot read",
    "worker_full": "a hint: a lost one costs a datagram or notification, and the next beat undoes it",
    "worker_suspect": "a hint: a lost one costs a worker time, and the next beat undoes it",
}
"""Writing statements that no case runs into, and why."""

_WRITES = re.compile(r"^\s*(WITH\b.*\b)?(INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE | re.DOTALL)


def _protocols() -> Iterator[type]:
    for module in pkgutil.walk_packages(lash.stores.__path__, "lash.stores."):
        members = vars(importlib.import_module(module.name))
        for member in members.values():
            own = inspect.isclass(member) and member.__module__ == module.name
            is_protocol = own and getattr(member, "_is_protocol", False)
            if is_protocol and not member.__name__.endswith("Rows") and _methods(member):
                yield member


def _methods(protocol: type) -> set[str]:
    return {name for name, member in vars(protocol).items() if inspect.iscoroutinefunction(member)}


def test_every_writing_method_has_a_case() -> None:
    """A method of a store is swept, or is listed as one that only reads; a new one must be added to one of the two."""
    written = {
        f"{protocol.__name__}.{method}"
        for protocol in _protocols()
        if protocol.__name__ not in BEHIND
        for method in _methods(protocol) - READS.get(protocol.__name__, set())
    }
    assert written == {case.method for case in CASES.values()}


def test_nothing_is_listed_that_is_not_there() -> None:
    """The lists of what is left out name only what exists."""
    methods = {protocol.__name__: _methods(protocol) for protocol in _protocols()}
    assert set(BEHIND) <= set(methods)
    for name, reads in READS.items():
        assert reads <= methods[name], name


async def test_every_writing_statement_is_a_point(sqlite_bench: SQLiteBench) -> None:
    """Each named statement that writes on SQLite is run by some case, so that faults happen before and after it."""
    queries = load_queries("lash.sqlite.sql")
    run: set[str] = set()
    for case in CASES.values():
        sqlite_bench.clear()
        run.update((await learn(sqlite_bench, case)).texts)
    written = {name for name, text in queries.items() if _WRITES.match(re.sub(r"--.*", "", text))}
    missing = {name for name in written if " ".join(compact(queries[name]).split()) not in run}
    assert missing == set(UNREACHED)
