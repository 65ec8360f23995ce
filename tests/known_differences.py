"""Where the two backends differ on purpose, each with its reason.

The lists are closed: `tools.check_repository` fails on a difference that is not listed and on an entry that is no
difference any more.
"""

QUERY_DIFFERENCES: dict[str, str] = {}
"""Query names (``some_query``) and migrations (``migration 0001``) that only one backend has."""

CONTRACT_DIFFERENCES: dict[str, str] = {}
"""Tests of the contract suite that a database in memory cannot pass, each with its reason."""
