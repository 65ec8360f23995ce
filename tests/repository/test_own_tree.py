"""This repository keeps its own rules, and the rules work on an empty tree."""

from pathlib import Path

import pytest

from lash.testing.postgres_server import PostgresServer
from tools.check_repository import REPORTS, RULES, findings
from tools.compile_rules import postgres_compiles, postgres_findings
from tools.repository import Repository, Rule

ROOT = Path(__file__).parents[2]
OFFLINE_RULES = [rule for rule in RULES if rule is not postgres_compiles]


def rule_name(rule: Rule) -> str:
    return getattr(rule, "__name__", str(rule))


@pytest.mark.parametrize("rule", OFFLINE_RULES, ids=rule_name)
def test_this_repository_keeps_the_rule(rule: Rule) -> None:
    """The rule has no finding in this tree."""
    assert findings(Repository(ROOT), [rule]) == []


async def test_the_postgres_queries_of_this_repository_compile(postgres_server: PostgresServer) -> None:
    """Every PostgreSQL query can be prepared on the schema that the migrations make."""
    assert await postgres_findings(Repository(ROOT), postgres_server.url) == []


def test_an_empty_tree_keeps_every_rule(tmp_path: Path) -> None:
    """Missing directories break no rule, and need no server."""
    assert findings(Repository(tmp_path), RULES + REPORTS) == []
