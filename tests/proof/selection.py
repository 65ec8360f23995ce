"""Which tests ``make test`` runs, which ``make proof`` runs, and which both run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final, Literal

DIRECTORY: Final = Path(__file__).parent
IN_TEST: Final = (
    "concurrency",
    "contention/test_frozen.py",
    "contention/test_stopped.py",
    "faults/postgres/test_failover.py",
    "faults/sqlite/test_disk_faults.py",
    "faults/sqlite/test_power_cut.py",
    "model/test_kit.py",
    "model/test_lease.py",
    "security",
)
"""Run by ``make test``: guarantees, and what takes seconds. One state machine stands for the others."""
SAMPLED: Final = (
    "concurrency/test_process_workers.py",
    "contention/test_contention.py",
)
"""Run by both: ``make test`` runs a short form, ``make proof`` a long one, as an environment variable says."""

LONG: Final = (
    "tests/agents/test_readme_agent.py::test_it_runs_with_an_approval_from_another_process",
    "tests/base/test_codec.py::test_plain_json_comes_back_as_it_was",
    "tests/base/test_codec.py::test_whatever_is_accepted_comes_back_equal",
    "tests/benchmarks/test_kit.py::test_sides_take_turns",
    "tests/benchmarks/test_kit.py::test_the_server_counts_statements_and_transactions",
    "tests/cli/test_actions.py",
    "tests/cli/test_backup.py",
    "tests/cli/test_completion.py",
    "tests/cli/test_conversation.py",
    "tests/cli/test_errors.py",
    "tests/cli/test_file_rights.py",
    "tests/cli/test_first_steps.py",
    "tests/cli/test_formats.py",
    "tests/cli/test_ids.py",
    "tests/cli/test_lang_run.py",
    "tests/cli/test_output.py",
    "tests/cli/test_progress.py",
    "tests/cli/test_sealed.py",
    "tests/cli/test_session_watch.py",
    "tests/cli/test_states.py",
    "tests/cli/test_terminal.py",
    "tests/cli/test_transfer.py",
    "tests/cli/test_unicode.py",
    "tests/code/test_show.py",
    "tests/contract/test_dispatch.py::test_a_worker_keeps_the_work_of_its_own_storage",
    "tests/contract/test_dispatch.py::test_the_holder_gets_what_concerns_its_session",
    "tests/contract/test_dispatch.py::test_unnamed_work_is_left_to_the_duty_workers",
    "tests/contract/test_dispatch.py::test_work_that_was_not_taken_goes_to_another",
    "tests/contract/test_fork_delete.py::TestForkDelete::test_deletions_and_forks_race",
    "tests/contract/test_fork_model.py",
    "tests/contract/test_maintenance.py::TestMaintenance::test_pruning_takes_many_batches",
    "tests/contract/test_notify.py::TestNotify::test_whoever_listens_for_work_hears_of_it",
    "tests/deploy/test_files.py::test_the_services_answer_together",
    "tests/deploy/test_litestream.py",
    "tests/engine/bytestore/test_s3.py::test_a_server_killed_half_way_loses_nothing",
    "tests/engine/migration/test_outdated.py",
    "tests/engine/migration/test_previous_version.py",
    "tests/engine/postgres/test_activity.py::test_a_crash_of_the_server_is_a_gap_not_a_mix_up",
    "tests/engine/postgres/test_commit_group.py::test_a_commit_reads_few_rows_however_many_sessions_there_are",
    "tests/engine/postgres/test_companies.py",
    "tests/engine/postgres/test_epoch.py",
    "tests/engine/postgres/test_fleet_counts.py",
    "tests/engine/postgres/test_hints.py::test_idle_waiters_cost_less_than_two_round_trips_a_second",
    "tests/engine/postgres/test_pgbouncer.py",
    "tests/engine/postgres/test_relay.py::test_a_stopped_relay_is_given_up",
    "tests/engine/postgres/test_retries.py::test_a_server_that_is_away_is_unavailable_and_named",
    "tests/engine/postgres/test_room.py",
    "tests/engine/postgres/test_rotten_rows.py",
    "tests/engine/postgres/test_server.py",
    "tests/engine/postgres/test_version_15.py",
    "tests/engine/sqlite/test_fleet_counts.py",
    "tests/engine/sqlite/test_wal.py::test_readers_that_always_overlap_cannot_make_the_log_grow",
    "tests/engine/test_cancelled_opening.py",
    "tests/examples/test_written_program.py",
    "tests/proof/concurrency/test_dead_letter_kills.py",
    "tests/proof/concurrency/test_effects.py",
    "tests/proof/concurrency/test_forks.py",
    "tests/proof/concurrency/test_limits.py",
    "tests/proof/concurrency/test_parked_turns.py",
    "tests/proof/concurrency/test_parking.py",
    "tests/proof/concurrency/test_wait_processes.py",
    "tests/proof/contention/test_frozen.py",
    "tests/proof/contention/test_stopped.py",
    "tests/proof/faults/postgres/test_failover.py",
    "tests/proof/model",
    "tests/proof/security/test_sealed_contract.py",
    "tests/proof/security/test_secrets.py",
    "tests/protocols/front_end/test_agui.py::test_a_stream_continues_after_a_kill_of_the_worker",
    "tests/protocols/front_end/test_agui.py::test_an_interrupt_outlives_the_server_and_is_answered_once",
    "tests/protocols/front_end/test_agui.py::test_the_same_request_continues_after_a_kill_of_the_server",
    "tests/protocols/front_end/test_vercel.py",
    "tests/repository/test_facade.py::test_mypy_knows_the_names",
    "tests/repository/test_own_tree.py",
    "tests/repository/test_planted.py",
    "tests/runtime/test_ask_reads.py::test_a_reply_from_another_storage_takes_at_most_two_reads",
    "tests/runtime/test_demo.py",
    "tests/runtime/test_history.py::test_sizes_are_close_to_the_memory_that_is_used",
    "tests/runtime/test_lang_hostile.py::test_hostile_programs_end_and_the_worker_keeps_its_work",
    "tests/runtime/test_namespaces.py",
    "tests/runtime/test_outage.py",
    "tests/runtime/test_process_random.py",
    "tests/runtime/test_worker_cost.py",
    "tests/runtime/test_worker_fleet.py::test_a_dead_addressee_costs_a_fraction_of_a_second",
    "tests/runtime/test_worker_fleet.py::test_a_full_worker_is_assigned_no_more",
    "tests/runtime/test_worker_kinds.py",
    "tests/runtime/test_worker_process.py",
    "tests/runtime/test_worker_trouble.py",
    "tests/transfer/test_kills.py",
    "tests/transfer/test_move.py::test_a_killed_move_is_gone_on_with",
    "tests/transfer/test_round_trip.py::test_any_graph_survives",
)
"""Tests that take seconds each. ``make test`` runs the ones named in docs/guarantees.md, ``make proof`` the others.

The rules of ``test_own_tree.py`` are those of ``make check``.
"""
FIRST: Final = (
    "tests/runtime/test_crash_matrix.py",
    "tests/proof/security/test_sealed_contract.py",
    "tests/proof/contention",
    "tests/proof/concurrency/test_parked_turns.py",
    "tests/proof/faults/postgres/test_outage.py",
    "tests/proof/faults/sqlite/test_outage.py",
    "tests/proof/soak",
    "tests/proof/fuzz",
    "tests/proof/model",
    "tests/proof/sweep/test_reach.py",
    "tests/proof/concurrency",
    "tests/benchmarks",
    "tests/docs/test_site.py",
)
"""The files with the longest tests, which run first: one that began last would keep a single process busy."""

ROTATED: Final = {
    "tests/benchmarks/test_scenarios.py": 12,
    "tests/cli/test_examples.py": 2,
    "tests/deploy/test_litestream.py": 2,
    "tests/docs/test_blocks.py": 2,
    "tests/docs/test_commands.py": 2,
    "tests/engine/migration/test_previous_version.py": 2,
    "tests/engine/postgres/test_companies.py": 2,
    "tests/engine/postgres/test_rotten_rows.py": 2,
    "tests/engine/postgres/test_version_15.py": 20,
    "tests/proof/fuzz/test_damage.py": 4,
    "tests/proof/programs/test_effects.py": 10,
    "tests/proof/programs/test_kills.py": 20,
    "tests/proof/security/test_sealed_contract.py": 4,
    "tests/protocols/front_end/test_agui.py": 3,
    "tests/protocols/front_end/test_vercel.py": 3,
}
"""Files of which CI runs one of so many parts for each commit (`tools.rotation`); ``make proof`` runs all of them.

They are the scenarios of the benchmarks at a tiny size, pages and commands of the documentation, programs that are
crashed everywhere, tests that repeat others with encryption or at random, kills that both front-end protocols survive
by the same code, and tests of a rolling upgrade and of other servers, whose parts are databases.
"""
MEMORY_PARTS: Final = 6
"""The same for the tests on SQLite in memory, which is the engine of files without the file."""

MAKE_TEST: Final = "not proof"
"""The marks that ``make test`` chooses."""
MAKE_PROOF: Final = "proof or sampled"
"""The marks that ``make proof`` chooses."""

_ROOT: Final = DIRECTORY.parents[1]
_GUARANTEES: Final = _ROOT / "docs" / "guarantees.md"
_ABOVE_THE_STORAGE: Final = "tests/cli/"
_PURE: Final = DIRECTORY.parent / "rules"
"""Quick tests without a storage: ``make test`` runs all of them."""


def is_left_to_proof(nodeid: str, backend: str | None) -> bool:
    """Return whether only ``make proof`` runs a test, although no guarantee needs less.

    These are the long ones, the command on PostgreSQL, and SQLite in memory, which is the engine of files without the
    file. A test that a guarantee names stays in ``make test``, on both databases.
    """
    if backend == "memory":
        return True
    name = nodeid.partition("[")[0]
    file, *_, function = name.split("::")
    if f"{file}::{function}" in _guaranteed():
        return False
    return (backend == "postgres" and name.startswith(_ABOVE_THE_STORAGE)) or _is_long(name)


def parts_of(path: Path, backend: str | None) -> int:
    """Return into how many parts CI divides the tests of a file that are left to ``make proof``."""
    if backend == "memory":
        return MEMORY_PARTS
    return next((parts for name, parts in ROTATED.items() if path == _ROOT / name), 1)


@cache
def place_of(path: Path) -> int:
    """Return the place of a file's tests in the order of a run."""
    return next((place for place, name in enumerate(FIRST) if path.is_relative_to(_ROOT / name)), len(FIRST))


def has_none(path: Path, marks: str) -> bool:
    """Return whether these marks choose no test of a file, which then need not be loaded."""
    if marks == MAKE_PROOF:
        return path.is_relative_to(_PURE)
    if marks != MAKE_TEST:
        return False
    name = path.relative_to(_ROOT).as_posix()
    is_guarantee = any(each.startswith(f"{name}::") for each in _guaranteed())
    return mark_of(path) == "proof" or (_is_long(name) and not is_guarantee)


@cache
def _is_long(name: str) -> bool:
    return any(name == each or name.startswith((f"{each}::", f"{each}/")) for each in LONG)


@cache
def _guaranteed() -> frozenset[str]:
    return frozenset(re.findall(r"`(tests/[\w/]+\.py::\w+)`", _GUARANTEES.read_text(encoding="utf-8")))


@cache
def mark_of(path: Path) -> Literal["proof", "sampled"] | None:
    """Return the mark of the tests in a file; None if only ``make test`` runs them."""
    if not path.is_relative_to(DIRECTORY):
        return None
    if _is_below(path, SAMPLED):
        return "sampled"
    return None if _is_below(path, IN_TEST) else "proof"


def _is_below(path: Path, names: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(DIRECTORY / name) for name in names)
