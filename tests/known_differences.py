"""Where the two backends differ on purpose, each with its reason.

The lists are closed: `tools.check_repository` fails on a difference that is not listed and on an entry that is no
difference any more.
"""

QUERY_DIFFERENCES: dict[str, str] = {}
"""Query names (``some_query``) and migrations (``migration 0001``) that only one backend has."""

_GONE = "a database in memory is gone when its storage is closed"
_ONE_STORAGE = "a database in memory has one storage, opened with one set of options"

CONTRACT_DIFFERENCES: dict[str, str] = {
    "TestSessionStore::test_everything_survives_reopening": _GONE,
    "TestSessionTurn::test_a_repeat_survives_reopening": _GONE,
    "TestCheckpoint::test_a_ref_works_on_a_fresh_handle": _GONE,
    "TestCheckpoint::test_bytes_of_both_forms_live_in_one_session": _ONE_STORAGE,
    "TestCheckpoint::test_a_narrower_retention_drops_the_rest": _ONE_STORAGE,
}
"""Tests of the contract suite that a database in memory cannot run, each with its reason.

They are expected to fail there, so an entry that is no difference any more fails the run.
"""
