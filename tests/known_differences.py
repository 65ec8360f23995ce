"""Where the two backends differ on purpose, each with its reason.

The lists are closed: `tools.check_repository` fails on a difference that is not listed and on an entry that is no
difference any more.
"""

QUERY_DIFFERENCES: dict[str, str] = {
    "commit_known_attachments": "PostgreSQL reads the facts of a commit at once, SQLite one by one",
    "attachment_fence": "PostgreSQL announces an attachment as one statement, SQLite step by step",
    "attachment_fence_ids": "PostgreSQL looks at a page of fences in one statement, SQLite in two",
    "attachment_keep": "PostgreSQL announces an attachment as one statement, SQLite step by step",
    "attachment_now": "SQLite reads a clock of the process, not of the database",
    "commit_settle_keys": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "commit_held": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "commit_consume": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_settle_key": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_reserve_key": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_page_pending": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_insert": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_held": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_facts": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_extend_under_lease": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_enqueue": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_candidates": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_batch": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "queue_backlog": "PostgreSQL claims, enqueues and consumes in few statements, SQLite step by step",
    "checkpoint_at": "PostgreSQL loads a session as one statement, SQLite step by step",
    "checkpoint_components": "PostgreSQL loads a session as one statement, SQLite step by step",
    "checkpoint_current": "PostgreSQL loads a session as one statement, SQLite step by step",
    "checkpoint_load": "PostgreSQL loads a session as one statement, SQLite step by step",
    "commit_apply": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_begin_component": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_blob": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_checkpoint": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_current_components": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_drop_blobs": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_drop_checkpoints": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_drop_components": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_drop_frames": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_end_component": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_facts": "PostgreSQL reads the facts of a commit at once, SQLite one by one",
    "commit_frame": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_head": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_known_refs": "PostgreSQL reads the facts of a commit at once, SQLite one by one",
    "commit_node": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_segment": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_stamp_turn": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_turn": "PostgreSQL reads the facts of a commit at once, SQLite one by one",
    "commit_usage": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_usage_total": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "commit_usage_totals": "PostgreSQL writes a commit as one statement, SQLite step by step",
    "frame_all": "PostgreSQL loads a session as one statement, SQLite step by step",
    "node_all": "PostgreSQL loads a session as one statement, SQLite step by step",
    "node_lock_session": "SQLite has one writer, so it needs no row locks",
    "node_path": "PostgreSQL loads a session as one statement, SQLite step by step",
    "node_stored": "PostgreSQL reads the facts of a commit at once, SQLite one by one",
    "schema_create": "a SQLite file has no schemas and takes its own write lock",
    "schema_exists": "a SQLite file has no schemas and takes its own write lock",
    "schema_lock": "a SQLite file has no schemas and takes its own write lock",
    "session_create": "PostgreSQL creates a session as one statement, SQLite step by step",
    "session_delete": "PostgreSQL deletes and buries a session in one statement (session_bury)",
    "session_head": "PostgreSQL reads the facts of a commit at once, SQLite one by one",
    "session_insert": "PostgreSQL creates a session as one statement, SQLite step by step",
    "session_insert_lease": "PostgreSQL creates a session as one statement, SQLite step by step",
    "session_load": "PostgreSQL loads a session as one statement, SQLite step by step",
    "session_lock": "SQLite has one writer, so it needs no row locks",
    "session_take_id": "PostgreSQL creates a session as one statement, SQLite step by step",
    "usage_totals": "PostgreSQL loads a session as one statement, SQLite step by step",
}
"""Query names (``some_query``) and migrations (``migration 0001``) that only one backend has."""

_GONE = "a database in memory is gone when its storage is closed"
_ONE_STORAGE = "a database in memory has one storage, opened with one set of options"

CONTRACT_DIFFERENCES: dict[str, str] = {
    "TestArtifact::test_artifacts_survive_reopening": _GONE,
    "TestArtifact::test_profiles_share_refs": _ONE_STORAGE,
    "TestAttachment::test_attachments_survive_reopening": _GONE,
    "TestAttachmentFiles::test_attachments_survive_reopening": _GONE,
    "TestSessionStore::test_everything_survives_reopening": _GONE,
    "TestSessionTurn::test_a_repeat_survives_reopening": _GONE,
    "TestQueue::test_queued_work_survives_reopening": _GONE,
    "TestCheckpoint::test_a_ref_works_on_a_fresh_handle": _GONE,
    "TestCheckpoint::test_bytes_of_both_forms_live_in_one_session": _ONE_STORAGE,
    "TestCheckpoint::test_a_narrower_retention_drops_the_rest": _ONE_STORAGE,
}
"""Tests of the contract suite that a database in memory cannot run, each with its reason.

They are expected to fail there, so an entry that is no difference any more fails the run.
"""
